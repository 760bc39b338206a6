"""Closed forms of the scale and the gap against explicit vectors and norms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resharpen.interp import theory

SEEDS = st.integers(0, 2**31 - 1)
NORMED = [(placement, kind) for placement in ("post", "res_post", "peri") for kind in ("RMS", "LN")]


def norm(x: np.ndarray, kind: str, eps: float, gain: float = 1.0) -> tuple[np.ndarray, float]:
    """LayerNorm or RMSNorm with one number as gain: the output and the scale."""
    centred = x - x.mean() if kind == "LN" else x
    scale = float(np.sqrt((centred**2).mean() + eps))
    return gain * centred / scale, scale


class Block:
    """The stream of one query, built coordinate by coordinate.

    The first `vocabulary` coordinates are logit directions; the residual content lies in the others
    and has mean zero there, so that it is orthogonal to the pattern and to the all-ones vector.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.vocabulary = int(rng.integers(3, 20))
        self.width = self.vocabulary + int(rng.integers(2, 8))
        self.p, self.residual = (float(x) for x in np.exp(1.5 * rng.normal(size=2)))
        self.gain, self.final_gain = (float(x) for x in np.exp(rng.normal(size=2)))
        self.eps = float(rng.choice([0.0, 1e-5, 0.3]))
        content = rng.normal(size=self.width - self.vocabulary)
        content -= content.mean()
        self.content = np.zeros(self.width)
        self.content[self.vocabulary :] = self.residual * content / np.linalg.norm(content)
        self.order = rng.permutation(self.vocabulary)

    def attended(self, length: int) -> np.ndarray:
        values = -self.p * np.eye(self.width)[self.order[:length]]
        return np.full(length, 1.0 / length) @ values

    def run(self, placement: str, kind: str, length: int) -> tuple[np.ndarray, float]:
        """The stream after the block, and the scale of the norm that follows the aggregation."""
        out, scale = self.attended(length), 1.0
        if placement in ("res_post", "peri"):
            out, scale = norm(out, kind, self.eps, self.gain)
        stream = self.content + out
        if placement == "post":
            stream, scale = norm(stream, kind, self.eps, self.gain)
        return stream, scale

    def gap(self, stream: np.ndarray, length: int) -> float:
        present = self.order[:length]
        absent = np.setdiff1d(np.arange(self.vocabulary), present)
        gaps = stream[absent][:, None] - stream[present][None, :]
        assert np.ptp(gaps) < 1e-9
        return float(gaps.mean())


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seed=SEEDS, which=st.sampled_from([("none", "RMS"), ("pre", "LN"), *NORMED]))
def test_scale_gap_and_gain_of_every_placement(seed: int, which: tuple[str, str]) -> None:
    placement, kind = which
    block = Block(np.random.default_rng(seed))
    given_ = {"width": block.width, "residual": block.residual, "eps": block.eps}
    _, alone = block.run(placement, kind, 1)
    for length in range(1, block.vocabulary):
        stream, scale = block.run(placement, kind, length)
        args = (placement, kind, length, block.p)
        assert theory.predict_scale(*args, **given_) == pytest.approx(scale, rel=1e-9)
        gain = theory.predict_rescale_gain(*args, **given_)
        assert gain == pytest.approx(alone / scale, rel=1e-9)
        gap = theory.predict_gap(*args, **given_, gain=block.gain)
        assert gap == pytest.approx(block.gap(stream, length), rel=1e-9)
        frozen = theory.predict_gap(*args, **given_, gain=block.gain, frozen=True)
        assert gap / frozen == pytest.approx(gain, rel=1e-9)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(seed=SEEDS, which=st.sampled_from([("none", "LN"), ("pre", "RMS"), *NORMED]))
def test_gap_after_a_final_norm(seed: int, which: tuple[str, str]) -> None:
    placement, kind = which
    block = Block(np.random.default_rng(seed))
    alone = block.run(placement, kind, 1)[0]
    _, last_alone = norm(alone, kind, block.eps)
    first_alone = block.run(placement, kind, 1)[1]
    for length in range(1, block.vocabulary):
        before, first = block.run(placement, kind, length)
        stream, last = norm(before, kind, block.eps, block.final_gain)
        options = {
            "width": block.width,
            "residual": block.residual,
            "eps": block.eps,
            "gain": block.gain,
            "final_norm": True,
            "final_gain": block.final_gain,
        }
        args = (placement, kind, length, block.p)
        gap = theory.predict_gap(*args, **options)
        assert gap == pytest.approx(block.gap(stream, length), rel=1e-9)
        frozen = theory.predict_gap(*args, **options, frozen=True)
        rescale = first_alone / first * last_alone / last
        assert gap / frozen == pytest.approx(rescale, rel=1e-9)


def test_a_final_norm_turns_pre_into_post() -> None:
    """The confound of theory 1.1: in one block the two placements compute the same."""
    s = np.arange(1, 31)
    options = {"width": 32, "residual": 3.0, "eps": 1e-5}
    for kind in ("RMS", "LN"):
        post = theory.predict_gap("post", kind, s, 8.0, **options, gain=2.0)
        for placement in ("none", "pre"):
            final = theory.predict_gap(
                placement, kind, s, 8.0, **options, final_norm=True, final_gain=2.0
            )
            np.testing.assert_allclose(final, post, rtol=1e-12)


@pytest.mark.parametrize("p", [0.01, 1.0, 300.0])
def test_table_of_the_theory(p: float) -> None:
    v = 40
    s = np.arange(1, v)

    def gap(placement: str, kind: str, residual: float = 0.0) -> np.ndarray:
        return theory.predict_gap(placement, kind, s, p, width=v, residual=residual)

    np.testing.assert_allclose(gap("none", "RMS"), p / s)
    np.testing.assert_allclose(gap("post", "LN"), v / np.sqrt(s * (v - s)))
    assert gap("post", "LN").min() == pytest.approx(2.0)
    np.testing.assert_allclose(gap("post", "RMS"), np.sqrt(v / s))
    b = 0.7
    closed = np.sqrt(v) * (p / s) / np.sqrt(b**2 + p**2 / s)
    np.testing.assert_allclose(gap("post", "RMS", b), closed)
    for placement in ("res_post", "peri"):
        np.testing.assert_allclose(gap(placement, "RMS", b), np.sqrt(v / s))
        np.testing.assert_allclose(gap(placement, "LN", b), v / np.sqrt(s * (v - s)))


def test_exponent_is_a_half_before_the_crossover_and_one_after() -> None:
    p, b, width = 100.0, 1.0, 10**9
    s = np.array([2.0**k for k in range(1, 28)])
    gap = theory.predict_gap("post", "RMS", s, p, width=width, residual=b)
    slope = np.diff(np.log(gap)) / np.diff(np.log(s))
    crossover = theory.predict_crossover_length(p, b)
    assert crossover == pytest.approx(1e4)
    np.testing.assert_allclose(slope[s[1:] < crossover / 100], -0.5, atol=0.01)
    np.testing.assert_allclose(slope[s[:-1] > crossover * 100], -1.0, atol=0.01)
    at = theory.predict_gap("post", "RMS", 10**4, p, width=width, residual=b)
    free = theory.predict_gap("post", "RMS", 10**4, p, width=width)
    assert at / free == pytest.approx(np.sqrt(0.5))


def test_eps_acts_as_residual_content() -> None:
    width, eps, p = 64, 1e-2, 3.0
    s = np.arange(1, 60)
    with_eps = theory.predict_scale("post", "RMS", s, p, width=width, eps=eps)
    content = np.sqrt(width * eps)
    with_content = theory.predict_scale("post", "RMS", s, p, width=width, residual=content)
    np.testing.assert_allclose(with_eps, with_content)
    assert theory.predict_crossover_length(p, 0.0, width, eps) == pytest.approx(
        theory.predict_crossover_length(p, content)
    )
    assert theory.predict_crossover_length(p, 0.0) == np.inf


def test_gain_is_bounded_by_the_residual_content() -> None:
    s = np.arange(1, 10**4)
    gain = theory.predict_rescale_gain("post", "RMS", s, 5.0, width=10**4, residual=2.0)
    assert gain[0] == 1.0 and (np.diff(gain) > 0).all()
    assert gain[-1] <= np.sqrt(1 + (5 / 2) ** 2) <= 1.001 * gain[-1]
    np.testing.assert_allclose(
        theory.predict_rescale_gain("peri", "RMS", s, 5.0, width=10**4), np.sqrt(s)
    )


@settings(max_examples=80, derandomize=True, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["RMS", "RMSPre", "LN", "LNPre"]))
def test_scale_of_any_pattern(seed: int, kind: str) -> None:
    """Unequal strengths and weights: displacements after the norm are those before over scale."""
    rng = np.random.default_rng(seed)
    block = Block(rng)
    length = int(rng.integers(1, block.vocabulary))
    tokens = block.order[:length]
    weights, p = rng.dirichlet(np.ones(length)), np.exp(rng.normal(size=length))
    delta = float(np.exp(rng.normal()))
    displacements = theory.predict_displacement(p, delta, weights)
    stream = block.content.copy()
    stream[tokens] -= displacements
    out, scale = norm(stream, kind[:2] if kind[:2] == "LN" else "RMS", block.eps)
    predicted = theory.predict_pattern_scale(
        displacements, block.width, kind, block.residual, block.eps
    )
    assert predicted == pytest.approx(scale, rel=1e-9)
    absent = np.setdiff1d(np.arange(block.vocabulary), tokens)
    np.testing.assert_allclose(out[absent[0]] - out[tokens], displacements / predicted, rtol=1e-7)


def test_pattern_scale_of_equal_displacements_is_the_post_law() -> None:
    for kind in ("RMS", "LN"):
        for s in (1, 5, 16):
            pattern = theory.predict_pattern_scale(np.full(s, 6.0 / s), 16, kind, 0.5, 1e-5)
            law = theory.predict_scale("post", kind, s, 6.0, width=16, residual=0.5, eps=1e-5)
            assert pattern == pytest.approx(law)
    rows = theory.predict_pattern_scale(np.ones((3, 2, 4)), 8)
    assert rows.shape == (3, 2)


def test_a_norm_of_nothing_is_nan_not_a_number() -> None:
    gap = theory.predict_gap("post", "LN", [4, 8], 3.0, width=8)
    assert np.isnan(gap).tolist() == [False, True]
    final = theory.predict_gap("post", "LN", [4, 8], 3.0, width=8, final_norm=True)
    assert np.isnan(final).tolist() == [False, True]
    gain = theory.predict_rescale_gain("peri", "LN", [4, 8], 3.0, width=8)
    assert np.isnan(gain).tolist() == [False, True]


def test_the_table_of_laws_covers_every_placement_with_both_families() -> None:
    placements = {placement for placement, _ in theory.SCALE_LAWS}
    assert placements == {"none", "pre", "post", "res_post", "peri"}
    for placement in placements:
        assert {"RMS", "LN"} <= {kind for at, kind in theory.SCALE_LAWS if at == placement}
    for alias, family in theory.NORMALIZATION_FAMILIES.items():
        options = {"width": 16, "residual": 1.0}
        assert theory.predict_gap("post", alias, 4, 2.0, **options) == theory.predict_gap(
            "post", family, 4, 2.0, **options
        )
    assert theory.predict_gap("none", None, 4, 2.0, width=16) == 0.5


@pytest.mark.parametrize(
    ("placement", "kind", "changes", "message"),
    [
        ("sandwich", "RMS", {}, "must be one of"),
        ("pre", None, {}, "must be one of"),
        ("post", "BatchNorm", {}, "'BatchNorm'"),
        ("none", None, {"final_norm": True}, "must be one of"),
        ("post", "RMS", {"length": 17}, "length must be at most width"),
        ("none", None, {"length": 17}, "length must be at most width"),
        ("post", "RMS", {"length": 0}, "length"),
        ("post", "RMS", {"p": 0.0}, "p must be finite and > 0"),
        ("peri", "RMS", {"residual": -1.0}, "residual"),
        ("peri", "LN", {"residual": -1.0}, "residual"),
        ("post", "LN", {"eps": -1e-9}, "eps"),
        ("post", "LN", {"gain": 0.0}, "gain"),
        ("post", "LN", {"width": 2.5}, "width must be whole"),
    ],
)
def test_bad_input(placement: str, kind: str | None, changes: dict, message: str) -> None:
    arguments = {"length": 4, "p": 2.0, "width": 16, **changes}
    with pytest.raises(ValueError, match=message):
        theory.predict_gap(placement, kind, **arguments)


def test_bad_patterns() -> None:
    with pytest.raises(ValueError, match="1 <= s <= width"):
        theory.predict_pattern_scale(np.ones(5), 4)
    with pytest.raises(ValueError, match="normalization must be one of"):
        theory.predict_pattern_scale(np.ones(3), 4, "none")
