"""What observing every row of attention costs, against a plain forward and against patterns.

    python benchmarks/attention_statistics.py                    # table; JSON beside it
    python benchmarks/attention_statistics.py --designs          # one layer: kernels and tiles

The model is a Hugging Face Llama with random weights, 4 layers of 8 heads of width 64. Each side
lives in its own process, so that its peak memory is its own; the sides take turns at every length,
so that a busy machine slows all of them. Seconds are the fastest turn, processor seconds the least
(with ``--threads 1`` the steadier measure on a machine that others use), ratios are of those, and
"extra" is the peak resident memory over that of the idle process with its model loaded. Every side
returns the mean entropy of every layer, and the run stops if they disagree.

The two sides that store patterns need 11 GiB at 8192 tokens; ``--lengths`` and ``--sides`` choose.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIDES = {
    "plain": "forward, sdpa",
    "two": "forward + entropy and effective support of every row",
    "all": "forward + every statistic of every row",
    "beside": "forward, sdpa untouched, + entropy and effective support beside it",
    "eager": "forward, output_attentions=True, + entropy and effective support",
    "eager_all": "the same, + every statistic from the stored patterns",
    "lens": "TransformerLens run_with_cache of the patterns, + entropy and effective support",
}
STORES_PATTERNS = {"eager": ("two", "all"), "eager_all": ("all",), "lens": ("two", "all")}
"""The sides that store patterns, and ours that each is set against."""
N_LAYERS, N_HEADS, D_HEAD, D_MLP, D_VOCAB = 4, 8, 64, 1376, 1000
"""Llama's own proportion of the MLP: 8/3 of the width, rounded up."""
SCORE_SIZE = 3.0
"""Query and key weights are this many times the default initialisation: scores of deviation 2."""


def build_model(implementation: str, score_size: float, longest: int) -> Any:
    """A random Llama with the same weights in every process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=D_VOCAB,
        hidden_size=N_HEADS * D_HEAD,
        intermediate_size=D_MLP,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        num_key_value_heads=N_HEADS,
        max_position_embeddings=longest,
    )
    model = LlamaForCausalLM(config).eval()
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight.mul_(score_size)
    return model


def pattern_means(pattern: Any) -> float:
    """Mean entropy of a stored pattern; takes its effective support too, as the others do."""
    import torch

    (1.0 / pattern.square().sum(-1)).mean()
    return float(torch.special.entr(pattern).sum(-1).mean())


def every_pattern_statistic(pattern: Any) -> float:
    """Every statistic that ours gives, from a stored causal pattern, head by head."""
    import torch

    n = torch.arange(1, pattern.shape[-1] + 1)
    visible = torch.ones(pattern.shape[-2:], dtype=torch.bool).tril_()
    entropies = []
    for head in pattern[0]:
        entropy = torch.special.entr(head).sum(-1)
        wanted = [entropy.exp(), entropy / n.log(), 1.0 / head.square().sum(-1), head.amax(-1)]
        wanted += [head[..., 0], head.topk(4, -1).values.sum(-1)]
        wanted.append(torch.where(visible & ~visible.tril(-16), head, 0.0).sum(-1))
        scores = head.log()
        wanted.append(scores.amax(-1) - torch.where(visible, scores, torch.inf).amin(-1))
        mean = torch.where(visible, scores, 0.0).sum(-1, keepdim=True) / n[:, None]
        wanted.append(torch.where(visible, (scores - mean).square(), 0.0).sum(-1).div(n).sqrt())
        entropies.append(float(entropy.mean()))
    return sum(entropies) / len(entropies)


def make_side(side: str, score_size: float, longest: int) -> Callable[[Any], list[float]]:
    """A function of tokens that runs the side once and returns each layer's mean entropy."""
    if side in ("eager", "eager_all"):
        model = build_model("eager", score_size, longest)
        reduce = pattern_means if side == "eager" else every_pattern_statistic

        def run_eager(tokens: Any) -> list[float]:
            result = model(tokens, use_cache=False, output_attentions=True)
            return [reduce(pattern) for pattern in result.attentions]

        return run_eager
    if side == "lens":
        from transformer_lens.model_bridge.sources import build_bridge_from_module

        model = build_model("eager", score_size, longest)
        bridge = build_bridge_from_module(model, "LlamaForCausalLM", hf_config=model.config).eval()
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(N_LAYERS)]

        def run_lens(tokens: Any) -> list[float]:
            cache = bridge.run_with_cache(tokens, names_filter=names)[1]
            return [pattern_means(cache[name]) for name in names]

        return run_lens
    observed: list[float] = []
    model = build_model("sdpa", score_size, longest)
    if side != "plain":
        observe(model, side, observed)

    def run_fused(tokens: Any) -> list[float]:
        observed.clear()
        model(tokens, use_cache=False)
        return list(observed)

    return run_fused


def observe(model: Any, side: str, observed: list[float]) -> None:
    """Put the row statistics in the place of the model's attention call, or beside it."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    from resharpen.interp.attention_statistics import (
        ALL_STATISTICS,
        DEFAULT_STATISTICS,
        AttentionRule,
        attention_with_statistics,
        row_statistics,
    )

    statistics = ALL_STATISTICS if side == "all" else DEFAULT_STATISTICS

    def attend(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
    ) -> Any:
        if attention_mask is not None:
            raise ValueError("expected a plain causal mask in this benchmark")
        rule = AttentionRule(scale=options.get("scaling"), causal=module.is_causal)
        if side == "beside":
            output = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
            rows = row_statistics(query, key, rule, statistics=statistics)
        else:
            mixed, rows = attention_with_statistics(query, key, value, rule, statistics=statistics)
            output = mixed.transpose(1, 2).contiguous(), None
        observed.append(float(rows["entropy"].mean()))
        return output

    AttentionInterface.register("rows", attend)
    AttentionMaskInterface.register("rows", sdpa_mask)
    model.set_attn_implementation("rows")


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def measured(call: Callable[[], list[float]], idle: int) -> dict[str, Any]:
    """Seconds, peak memory over ``idle``, and what the call returned."""
    peak, done = [resident()], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, cpu = time.perf_counter(), time.process_time()
    entropies = call()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    done.set()
    watcher.join()
    return {
        "seconds": seconds,
        "cpu": cpu,
        "extra_mib": (peak[0] - idle) / 2**20,
        "entropy": entropies,
    }


def work(side: str, threads: int, score_size: float, longest: int) -> None:
    """The process of one side: a length comes in on every line, a measurement goes out."""
    import torch

    torch.set_num_threads(threads)
    with torch.inference_mode():
        run = make_side(side, score_size, longest)
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(D_VOCAB, (1, longest), generator=generator)
        run(tokens[:, :128])
        idle = resident()
        send({"ready": torch.__version__})
        for line in sys.stdin:
            length = int(line)
            send(measured(lambda n=length: run(tokens[:, :n]), idle))


def send(message: dict[str, Any]) -> None:
    """One line of JSON to the parent."""
    print(json.dumps(message), flush=True)


class Side:
    """The parent's end of one side's process."""

    def __init__(self, name: str, threads: int, score_size: float, longest: int):
        """Start the process and wait until its model is loaded."""
        options = ["--threads", str(threads), "--score-size", str(score_size)]
        command = [sys.executable, __file__, "--work", name, *options, "--lengths", str(longest)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.torch = self._receive()["ready"]

    def __call__(self, length: int) -> dict[str, Any]:
        """Run the side once at this length."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{length}\n")
        self.process.stdin.flush()
        return self._receive()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()

    def _receive(self) -> dict[str, Any]:
        """The next line that is a message."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"a side ended with exit status {self.process.wait()}")


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run every side at every length, in turns, and return the rows of the table."""
    lengths = sorted(arguments.lengths)
    rows: list[dict[str, Any]] = []
    options = (arguments.threads, arguments.score_size, lengths[-1])
    sides = {name: Side(name, *options) for name in arguments.sides}
    try:
        for length in lengths:
            turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
            for turn in range(arguments.turns):
                for name, side in sides.items():
                    if turn and name in STORES_PATTERNS and length > 2048:
                        continue  # seconds of tens each, against which noise is small
                    turns[name].append(side(length))
            check_agreement({name: taken[0]["entropy"] for name, taken in turns.items()})
            for name, taken in turns.items():
                seconds, cpu = (min(one[key] for one in taken) for key in ("seconds", "cpu"))
                extra = max(one["extra_mib"] for one in taken)
                row = {"side": name, "n": length, "seconds": seconds, "cpu": cpu}
                rows.append(row | {"extra_mib": extra})
                print(f"{name:>9} n={length:<6} {seconds:8.3f} s {extra:9.1f} MiB", flush=True)
        version = next(iter(sides.values())).torch
    finally:
        for side in sides.values():
            side.close()
    return {"torch": version, "rows": rows}


def check_agreement(entropies: dict[str, list[float]]) -> None:
    """Raise unless the sides that measure an entropy found the same, to 1e-4 nats."""
    found = {name: values for name, values in entropies.items() if values}
    for name, values in found.items():
        for other, reference in found.items():
            gaps = [abs(a - b) for a, b in zip(values, reference, strict=True)]
            if max(gaps) > 1e-4:
                raise AssertionError(f"{name} and {other} disagree by {max(gaps):.2g} nats")


def render(rows: list[dict[str, Any]]) -> str:
    """The table: for every length, seconds and memory of each side, and what the targets ask."""
    at = {(row["side"], row["n"]): row for row in rows}
    heads = ("", "n", "seconds", "extra MiB", "/ plain", "cpu / plain")
    lines = ["", "{:>9} {:>6} {:>9} {:>10} {:>8} {:>12}".format(*heads)]
    for n in sorted({row["n"] for row in rows}):
        for side in SIDES:
            if (side, n) not in at:
                continue
            row, plain = at[side, n], at.get(("plain", n))
            line = f"{side:>9} {n:>6} {row['seconds']:9.3f} {row['extra_mib']:10.1f}"
            if plain is not None:
                line += (
                    f" {row['seconds'] / plain['seconds']:8.2f} {row['cpu'] / plain['cpu']:12.2f}"
                )
            if side in STORES_PATTERNS:
                for ours in STORES_PATTERNS[side]:
                    if mine := at.get((ours, n)):
                        faster = row["seconds"] / mine["seconds"]
                        smaller = row["extra_mib"] / mine["extra_mib"]
                        line += f"  than {ours}: {faster:.1f}x slower, {smaller:.1f}x larger"
            lines.append(line)
    return "\n".join([*lines, "", *(f"{name}: {text}" for name, text in SIDES.items())])


def designs(arguments: argparse.Namespace) -> dict[str, Any]:
    """One layer: ways to the same numbers, as multiples of one plain fused call."""
    import torch

    from resharpen.interp.attention_statistics import (
        ALL_STATISTICS,
        DEFAULT_STATISTICS,
        AttentionRule,
        Tile,
        attention_with_statistics,
        row_statistics,
    )

    torch.set_num_threads(arguments.threads)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    scale, rows = D_HEAD**-0.5, []
    for n in sorted(arguments.lengths):
        q, k, v = (torch.randn(1, N_HEADS, n, D_HEAD) for _ in range(3))
        blank = torch.zeros_like(q)
        wide = [torch.cat(pair, -1) for pair in ((q, blank), (k, blank), (v, k))]
        half = [array.bfloat16() for array in (q, k, v)]
        calls: dict[str, Callable[[], Any]] = {
            "two calls with keys as values, scale and 2 scale": lambda q=q, k=k: (
                flash(q, k, k, 0.0, True, scale=scale),
                flash(q, k, k, 0.0, True, scale=2 * scale),
            ),
            "[value, key] in one call, and one at 2 scale": lambda w=wide, q=q, k=k: (
                flash(*w, 0.0, True, scale=scale),
                flash(q, k, k, 0.0, True, scale=2 * scale),
            ),
            "blockwise, no output, two statistics": lambda q=q, k=k: row_statistics(q, k),
            "blockwise, no output, all": lambda q=q, k=k: row_statistics(
                q, k, statistics=ALL_STATISTICS
            ),
            "blockwise, large scores (float64 product)": lambda a=(q, k, v): (
                attention_with_statistics(*a, rule=AttentionRule(scale=1.0))
            ),
            "blockwise, bfloat16 arrays": lambda a=half: attention_with_statistics(
                a[0], a[1], a[2]
            ),
        }
        for shape in ((128, 512), (256, 512), (256, 1024), (128, 2048)):
            for scores in (2**17, 2**18, 2**19, 2**20):
                tile = Tile(*shape, scores=scores)
                for name, wanted in (("two", DEFAULT_STATISTICS), ("all", ALL_STATISTICS)):
                    calls[f"blockwise, {name}, {tile}"] = lambda a=(q, k, v), t=tile, w=wanted: (
                        attention_with_statistics(*a, statistics=w, tile=t)
                    )
        with torch.inference_mode():
            plain = lambda a=(q, k, v): flash(*a, 0.0, True, scale=scale)  # noqa: E731
            taken: dict[str, list[float]] = {name: [] for name in calls}
            base = [timed(plain)]
            for _ in range(arguments.turns):
                for name, call in calls.items():
                    base.append(timed(plain))
                    taken[name].append(timed(call))
        for name, seconds in taken.items():
            ratio = min(seconds) / min(base)
            rows.append({"design": name, "n": n, "ratio_to_one_fused_call": ratio})
            print(f"n={n:<6} {ratio:6.2f}  {name}", flush=True)
    return {"torch": torch.__version__, "rows": rows}


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Read the options, run, print the table and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--turns", type=int, default=3, help="turns of every side")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--score-size", type=float, default=SCORE_SIZE)
    parser.add_argument("--designs", action="store_true", help="one layer, ways and tiles compared")
    parser.add_argument("--json", type=Path, default=Path("attention_statistics.json"))
    parser.add_argument("--work", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.threads, arguments.score_size, arguments.lengths[0])
        return
    result = designs(arguments) if arguments.designs else compare(arguments)
    if not arguments.designs:
        print(render(result["rows"]))
    settings = {"threads": arguments.threads, "turns": arguments.turns, "sides": SIDES}
    arguments.json.write_text(json.dumps(settings | result, indent=1) + "\n")


if __name__ == "__main__":
    main()
