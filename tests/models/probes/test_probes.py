import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch

from resharpen.models.probes import (
    NO_KEY,
    NO_LABEL,
    PROBES,
    Needle,
    Probe,
    ProbeBatch,
    RandomTokens,
    Repeated,
    TaskProbe,
    Text,
    get_probe,
    shipped_text,
)
from resharpen.models.tasks import SetComplement, seeded_generator


def by_bytes(text: str) -> list[int]:
    return list(text.encode())


EVERY: dict[str, Probe] = {
    "repeated": Repeated(40, avoid=(3,), bos=1),
    "repeated again": Repeated(7, replacement=True),
    "needle": Needle(60, avoid=(3, 59), bos=1),
    "needle first": Needle(60, depth=0.0),
    "random": RandomTokens(40, avoid=(3,), bos=1),
    "text": Text(by_bytes, bos=1),
    "task": TaskProbe(SetComplement(32, bos=True)),
}


@pytest.fixture(params=EVERY)
def probe(request: pytest.FixtureRequest) -> Probe:
    return EVERY[request.param]


def test_the_registry_names_every_class_and_needs_no_torch() -> None:
    for name in PROBES:
        assert get_probe(name).name == name
    assert {type(probe) for probe in EVERY.values()} == {get_probe(name) for name in PROBES}
    with pytest.raises(ValueError, match="unknown probe 'nedle': expected one of repeated, needle"):
        get_probe("nedle")
    code = (
        "import sys; from resharpen.models.probes import PROBES; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("length", [5, 12, 21])
def test_batches_do_not_depend_on_how_they_were_split(probe: Probe, length: int) -> None:
    whole = probe.sample(seeded_generator(3, length), 5, length)
    generator = seeded_generator(3, length)
    parts = [probe.sample(generator, size, length) for size in (2, 1, 2)]
    for name in ("tokens", "relevant_key", "labels"):
        joined = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(getattr(whole, name), joined)
        assert joined.dtype is torch.int64
    other = probe.sample(seeded_generator(4, length), 5, length)
    assert not torch.equal(whole.tokens, other.tokens)


@pytest.mark.parametrize("length", [5, 12, 21])
def test_the_length_counts_positions_and_special_tokens_are_avoided(
    probe: Probe, length: int
) -> None:
    batch = probe.sample(seeded_generator(0), 40, length)
    assert batch.length == length
    assert batch.tokens.shape == (40, length + int(isinstance(probe, TaskProbe)))
    bos = getattr(probe, "bos", None)
    if bos is not None:
        assert bool((batch.tokens[:, 0] == bos).all())
        assert not bool((batch.tokens[:, 1:] == bos).any())
    for token in getattr(probe, "avoid", ()):
        assert not bool((batch.tokens == token).any())
    scored = batch.labels != NO_LABEL
    assert bool((batch.labels[scored] >= 0).all())


@pytest.mark.parametrize(("bos", "length"), [(None, 4), (None, 11), (0, 5), (0, 24), (0, 25)])
def test_repeated_the_relevant_key_follows_the_previous_occurrence(bos, length) -> None:
    probe = Repeated(20, bos=bos)
    batch = probe.sample(seeded_generator(1), 6, length)
    opening, period = int(bos is not None), probe.period(length)
    for tokens, relevant, labels in zip(
        batch.tokens.tolist(), batch.relevant_key.tolist(), batch.labels.tolist(), strict=True
    ):
        assert len(set(tokens[opening : opening + period])) == period
        for query, token in enumerate(tokens):
            earlier = [key for key in range(opening, query) if tokens[key] == token]
            if not earlier:
                assert (relevant[query], labels[query]) == (NO_KEY, NO_LABEL)
                continue
            assert relevant[query] == earlier[-1] + 1 <= query
            assert labels[query] == tokens[relevant[query]]
            if query + 1 < length:
                assert labels[query] == tokens[query + 1]
    assert int((batch.relevant_key >= 0).sum(1).min()) >= (length - opening) // 2


@pytest.mark.parametrize(("bos", "length"), [(None, 3), (None, 12), (0, 4), (0, 21), (0, 22)])
def test_needle_the_relevant_key_is_the_value_of_the_key_asked_for(bos, length) -> None:
    probe = Needle(50, bos=bos)
    batch = probe.sample(seeded_generator(2), 30, length)
    opening, pairs = int(bos is not None), probe.n_pairs(length)
    places = set()
    for tokens, relevant, labels in zip(
        batch.tokens.tolist(), batch.relevant_key.tolist(), batch.labels.tolist(), strict=True
    ):
        body = tokens[-(2 * pairs + 1) : -1]
        keys, values = body[::2], body[1::2]
        assert len(set(keys)) == pairs and not set(keys) & set(values)
        asked = keys.index(tokens[-1])
        assert labels[-1] == values[asked] == tokens[relevant[-1]]
        assert tokens[relevant[-1] - 1] == tokens[-1]
        assert set(relevant[:-1]) == {NO_KEY} and set(labels[:-1]) == {NO_LABEL}
        places.add(asked)
        assert len(tokens) == length and length - opening - 2 * pairs - 1 in (0, 1)
    assert len(places) > min(pairs, 5) - 1


def test_needle_depth_says_where_the_pair_stands() -> None:
    for depth, key in ((0.0, 1), (0.5, 5), (1.0, 9)):
        batch = Needle(50, depth=depth).sample(seeded_generator(2), 3, 11)
        assert batch.relevant_key[:, -1].tolist() == [key] * 3


def test_random_tokens_are_uniform_over_what_is_allowed() -> None:
    batch = RandomTokens(6, avoid=(2,), bos=0).sample(seeded_generator(0), 200, 101)
    counts = torch.bincount(batch.tokens[:, 1:].flatten(), minlength=6)
    assert counts[0] == counts[2] == 0
    # 20000 draws over four tokens: 5000 each, standard deviation 61.
    assert bool(((counts[[1, 3, 4, 5]] - 5000).abs() < 300).all())
    assert bool((batch.relevant_key == NO_KEY).all()) and bool((batch.labels == NO_LABEL).all())


def test_text_windows_are_followed_by_what_follows_in_the_text(tmp_path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abcdefgh", encoding="utf-8")
    probe = Text(by_bytes, path)
    batch = probe.sample(seeded_generator(0), 50, 6)
    assert {bytes(row).decode() for row in batch.tokens.tolist()} == {"abcdef", "bcdefg"}
    assert torch.equal(batch.labels, batch.tokens + 1)
    assert probe.sample(seeded_generator(0), 1, 7).tokens.tolist() == [by_bytes("abcdefg")]
    with pytest.raises(ValueError, match=r"length 8 is more than .*text.txt has: its 8 tokens"):
        probe.check_length(8)
    with_bos = Text(by_bytes, path, bos=0).sample(seeded_generator(0), 1, 8)
    assert with_bos.tokens.tolist() == [[0, *by_bytes("abcdefg")]]
    assert with_bos.labels.tolist() == [[NO_LABEL, *by_bytes("bcdefgh")]]


def test_the_shipped_text_is_the_chapter_that_it_says() -> None:
    text = shipped_text()
    assert text.startswith("It is a truth universally acknowledged, that a single man in")
    assert text.rstrip().endswith("its solace was visiting and news.")
    assert 800 < len(text.split()) < 900
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert Text(by_bytes).to_dict()["sha256"] == digest


def test_the_task_is_its_own_probe() -> None:
    task = SetComplement(16, bos=True)
    probe = TaskProbe(task)
    batch = probe.sample(seeded_generator(5), 4, 9)
    drawn = task.sample(seeded_generator(5), 4, 9)
    assert torch.equal(batch.tokens, drawn.tokens)
    assert torch.equal(batch.labels, drawn.next_tokens)
    assert probe.to_dict() == {"name": "task", "task": task.to_dict()}
    with pytest.raises(ValueError, match="at least 1 and at most 15; got 16"):
        probe.check_length(16)


@pytest.mark.parametrize(
    ("probe", "length", "message"),
    [
        (Repeated(20), 3, "need a length of at least 4; got 3"),
        (Repeated(20, bos=0), 4, "need a length of at least 5; got 4"),
        (Repeated(20, bos=0), 40, "20 distinct tokens, but there are 19: ask for at most 39"),
        (Needle(20), 2, "at least 3; got 2"),
        (Needle(20, bos=0), 3, "at least 4; got 3"),
        (Needle(20), 23, "11 distinct keys, but half the ordinary tokens are 10: .* at most 22"),
        (RandomTokens(20), 0, "at least 1; got 0"),
        (RandomTokens(20, bos=0), 1, "at least 2; got 1"),
        (Text(by_bytes), 1, "at least 2; got 1"),
    ],
)
def test_degenerate_lengths_are_refused_in_one_sentence(probe, length, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        probe.sample(seeded_generator(0), 2, length)
    assert "\n" not in str(caught.value)


def test_the_longest_length_that_a_refusal_names_is_possible() -> None:
    assert Repeated(20, bos=0).sample(seeded_generator(0), 1, 39).tokens.shape == (1, 39)
    assert Needle(20).sample(seeded_generator(0), 1, 22).tokens.shape == (1, 22)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"special tokens must lie in 0..9; got 10"):
        Repeated(10, avoid=(10,))
    with pytest.raises(ValueError, match="at least two ordinary tokens"):
        RandomTokens(2, bos=0)
    with pytest.raises(ValueError, match="depth must lie between 0 and 1"):
        Needle(10, depth=1.5)
    with pytest.raises(ValueError, match="batch must be at least 1"):
        Needle(10).sample(seeded_generator(0), 0, 5)
    with pytest.raises(ValueError, match="cannot be read as UTF-8"):
        Text(by_bytes, "no/such/file").check_length(5)
    with pytest.raises(ValueError, match="sequence of token ids"):
        Text(lambda text: np.zeros((2, 2)).tolist()).check_length(5)
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match="labels must have the tokens' shape"):
        ProbeBatch(tokens, tokens, tokens[:, :2], 3)
    with pytest.raises(ValueError, match="an index below 3, or -1"):
        ProbeBatch(tokens, tokens + 3, tokens, 3)
