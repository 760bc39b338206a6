"""Threads change neither a row nor anybody's settings; the benchmark runs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from resharpen.interp.attention_statistics import (
    ALL_STATISTICS,
    AttentionRule,
    Tile,
    attention_with_statistics,
    workers,
)

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "attention_statistics.py"


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr(workers, "SCORES_WORTH_THREADS", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_threads_do_not_change_a_row(mode, three_threads, monkeypatch, draw, small_tile):
    query, key, value = draw()
    options = {"statistics": ALL_STATISTICS, "tile": small_tile}
    with mode():
        output, rows = attention_with_statistics(query, key, value, last=30, **options)
        assert torch.get_num_threads() == 3
        monkeypatch.setattr(workers, "SCORES_WORTH_THREADS", 10**9)
        alone_output, alone = attention_with_statistics(query, key, value, last=30, **options)
    assert torch.equal(output, alone_output)
    assert torch.equal(rows.status, alone.status)
    for name in rows:
        assert torch.equal(rows[name].nan_to_num(-1), alone[name].nan_to_num(-1))


def test_work_is_shared_only_where_it_pays(three_threads, monkeypatch):
    cpu = torch.device("cpu")
    assert workers.split_cores(cpu, 10) == (3, 1)
    monkeypatch.setattr(workers, "SCORES_WORTH_THREADS", 11)
    assert workers.split_cores(cpu, 10) == (1, 3)
    assert workers.split_cores(torch.device("cuda"), 10**9) == (1, 3)


def test_an_error_in_a_thread_arrives_and_leaves_the_settings(three_threads, draw):
    query, key, value = draw()

    def broken(batch, head, query_position, key_position):
        raise LookupError("no such position")

    rule = AttentionRule(mask=broken)
    with pytest.raises(LookupError, match="no such position"):
        attention_with_statistics(query, key, value, rule, tile=Tile(8, 8, 64))
    assert torch.get_num_threads() == 3


def run_benchmark(path: Path, *arguments: str) -> str:
    """What it says, in processes of its own."""
    command = [sys.executable, str(BENCHMARK), "--turns", "1", "--threads", "1", *arguments]
    done = subprocess.run(
        [*command, "--json", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_benchmark_runs_each_side_in_its_process(tmp_path):
    path = tmp_path / "result.json"
    said = run_benchmark(path, "--lengths", "32", "64", "--sides", "two", "eager")
    rows = json.loads(path.read_text())["rows"]
    found = [(row["side"], row["n"]) for row in rows]
    assert found == [("two", 32), ("eager", 32), ("two", 64), ("eager", 64)]
    assert "than two" in said


@pytest.mark.slow
def test_the_sides_of_the_benchmark_agree(tmp_path, monkeypatch, capsys):
    """Every side, one after the other in this process: importing torch seven times takes long."""
    spec = importlib.util.spec_from_file_location("benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)

    class Here:
        torch = torch.__version__

        def __init__(self, name, threads, score_size, longest):
            self.name, self.options = name, (score_size, longest)

        def __call__(self, length):
            with torch.inference_mode():
                run = benchmark.make_side(self.name, *self.options)
                tokens = torch.randint(benchmark.D_VOCAB, (1, length), generator=seeded())
                return benchmark.measured(lambda: run(tokens), benchmark.resident())

        def close(self):
            pass

    def seeded():
        return torch.Generator().manual_seed(1)

    path = tmp_path / "result.json"
    monkeypatch.setattr(benchmark, "Side", Here)
    arguments = ["--lengths", "64", "--turns", "1", "--threads", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
    benchmark.main()
    rows = json.loads(path.read_text())["rows"]
    sides = {"plain", "two", "all", "beside", "eager", "eager_all", "lens"}
    assert {row["side"] for row in rows} == sides
    assert "than two" in capsys.readouterr().out
