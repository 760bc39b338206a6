"""A study as it could come out of the set complement task: five seeds of four placements.

The means follow the closed forms of theory 1.1 (vocabulary 32, one layer, one head, uniform
attention up to a small score spread), with a factor of its own for each seed; nothing is trained.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest

from resharpen.analyses.cli import main
from resharpen.analyses.comparing import compare
from resharpen.analyses.findings import Verdict
from resharpen.analyses.provenance import provenance
from resharpen.analyses.result import StudyResult
from resharpen.interp.tables import table
from resharpen.interp.theory.curve import Curve

D_VOCAB = 32
LENGTHS = np.arange(1, D_VOCAB)
SEEDS = range(5)
SPREAD = 0.8
STRENGTH = {"none": 60.0, "post": 60.0, "res_post": 40.0, "peri": 45.0}
GAIN = {"post": 2.2, "res_post": 8.0, "peri": 6.5}
RESIDUAL = 14.0
WIDTH = 64

NORM_SITES = {
    "none": (),
    "post": ("blocks.0.ln1_resid.hook_scale",),
    "res_post": ("blocks.0.ln1_post.hook_scale",),
    "peri": ("blocks.0.ln1.hook_scale", "blocks.0.ln1_post.hook_scale"),
}
STREAM_SITES = ("blocks.0.hook_resid_pre", "blocks.0.hook_resid_mid", "blocks.0.hook_resid_post")
PATTERN = "blocks.0.attn.hook_pattern"
UNITS = {
    "entropy": "nats",
    "max_weight": "ratio",
    "displacement": "logit",
    "frozen_displacement": "logit",
    "displacement_rescale": "ratio",
    "rescale_gain": "ratio",
    "residual_norm": "l2",
    "total_variation": "ratio",
}


def gap(placement, length, strength):
    """Displacement by theory 1.1, and its two factors: frozen, rescale."""
    frozen = strength / length
    if placement == "none":
        return frozen, 1.0
    if placement == "post":

        def rms(n):
            return math.sqrt((RESIDUAL**2 + strength**2 / n) / WIDTH)

        frozen = frozen / rms(1) * GAIN[placement] * 2
        return frozen, rms(1) / rms(length)
    return GAIN[placement] * math.sqrt(D_VOCAB) / length, math.sqrt(length)


def error(displacement, length):
    """Total variation of equal displacements (theory 1.1)."""
    legal = D_VOCAB - length
    illegal = length * math.exp(-displacement)
    return illegal / (illegal + legal)


def rows_of(placement, seed, rng):
    """Rows of one run."""
    factor = 1.0 + 0.06 * rng.standard_normal()
    for length in LENGTHS.tolist():
        base = {
            "study": "set_complement",
            "checkpoint": placement,
            "task": "set_complement",
            "seed": seed,
            "length": length,
            "n_key": length,
        }

        def row(quantity, value, place=base, **more):
            sem = abs(value) * 0.004
            return {
                **place,
                "quantity": quantity,
                "unit": UNITS[quantity],
                "mean": value,
                "sem": sem,
                "n_obs": 256,
                "min": value - 10 * sem,
                "max": value + 10 * sem,
                **more,
            }

        head = {"layer": 0, "head": 0, "site": PATTERN}
        dispersed = math.log(length) - SPREAD**2 / 12 * (1 - 1 / length) * factor
        yield row("entropy", max(dispersed, 0.0), **head)
        yield row("max_weight", min(1.0, math.exp(SPREAD / 2 * factor) / length), **head)
        frozen, rescale = gap(placement, length, STRENGTH[placement] * factor)
        noise = 1.0 + 0.01 * rng.standard_normal()
        yield row("frozen_displacement", frozen * noise, site="logits")
        yield row("displacement_rescale", rescale, site="logits")
        yield row("displacement", frozen * noise * rescale, site="logits")
        wrong = error(frozen * noise * rescale, length)
        yield row("total_variation", wrong + 5e-4 * rng.random(), site="logits")
        for site in NORM_SITES[placement]:
            gain = 1.0 if site.endswith("ln1.hook_scale") else rescale
            yield row("rescale_gain", gain * noise, layer=0, site=site)
        for depth, site in enumerate(STREAM_SITES):
            norm = RESIDUAL if depth == 0 else math.hypot(RESIDUAL, 40 * factor / length**0.5)
            yield row("residual_norm", norm * (1 + 0.1 * depth), layer=0, site=site)


def curves_of(placement):
    """Curves of one checkpoint, as the studies draw them."""
    x = LENGTHS.astype(np.float64)
    strength = STRENGTH[placement]
    parts = [gap(placement, length, strength) for length in LENGTHS.tolist()]
    product = np.array([frozen * rescale for frozen, rescale in parts])
    wrong = [error(d, length) for d, length in zip(product.tolist(), LENGTHS.tolist(), strict=True)]

    def curve(name, quantity, values, kind="limit", **more):
        return Curve(
            name=name,
            quantity=quantity,
            unit=UNITS[quantity],
            x=x,
            values=np.asarray(values, dtype=np.float64),
            kind=kind,
            hypotheses=(
                "one layer, one head, attention only, weights that sum to one over the keys",
                "equal displacement p of every token: D = 1 z' - p I, with p < infinity",
            ),
            source="derived here (theory 1.1, closed forms)",
            domain=(1.0, 31.0),
            checkpoint=placement,
            **more,
        )

    head = {"x_name": "n_key", "layer": 0, "head": 0}
    floor = np.log(x) - np.minimum(SPREAD, SPREAD**2 / 8) - 0.05
    return [
        curve("fully dispersed: log n", "entropy", np.log(x), "upper_bound", **head),
        curve("log n - δ²/8", "entropy", floor, "lower_bound", **head),
        curve("closed form of the placement", "displacement", product),
        curve("closed form of the placement", "frozen_displacement", [f for f, _ in parts]),
        curve("closed form of the placement", "displacement_rescale", [r for _, r in parts]),
        curve("total variation of equal displacements", "total_variation", wrong),
    ]


@pytest.fixture(scope="session")
def study_table() -> pd.DataFrame:
    """The tidy table of the study."""
    rng = np.random.default_rng(0)
    return table(row for name in STRENGTH for seed in SEEDS for row in rows_of(name, seed, rng))


@pytest.fixture(scope="session")
def study_curves() -> tuple[Curve, ...]:
    """The theory curves of the study."""
    return tuple(curve for name in STRENGTH for curve in curves_of(name))


@pytest.fixture(scope="session")
def study_result(study_table, study_curves) -> StudyResult:
    """The study with findings, verdicts and a violated bound among them."""
    wrong = Curve(
        name="a bound that is <too> tight",
        quantity="max_weight",
        unit="ratio",
        x=LENGTHS.astype(np.float64),
        values=1.2 / LENGTHS,
        kind="upper_bound",
        hypotheses=("score spread below 0.36",),
        source="made up for the tests",
        domain=(1.0, 31.0),
        x_name="n_key",
        checkpoint="none",
    )
    curves = (*study_curves, wrong)
    verdicts = (
        Verdict("none", "model", "disperses", "FAIL", 0.94, 0.1, 12.0, 11.0,
                "the error passes 0.1 at length 12, within the lengths asked for"),
        Verdict("post", "model", "disperses", "WARN", 0.4, 0.1, 23.0, 25.0,
                "the error passes 0.1 at length 23"),
        Verdict("res_post", "model", "holds", "PASS", 0.009, 0.1, math.nan, math.nan,
                "the error stays below 0.1 at every length"),
        Verdict("peri", "model", "holds", "UNKNOWN", math.nan, 0.1, math.nan, math.nan,
                "length 31 was not measured & <so> nothing is said"),
    )  # fmt: skip
    return StudyResult(
        table=study_table,
        curves=curves,
        findings=tuple(compare(study_table, curve) for curve in curves),
        verdicts=verdicts,
        provenance=provenance(
            asked={"preset": "quick"},
            resolved={"preset": "quick", "d_vocab": D_VOCAB, "train_length": 8, "ratio": math.nan},
            seeds=SEEDS,
            checkpoints={name: "ab" * 32 for name in STRENGTH},
        ),
        sentences=(
            "Without a norm the displacement of a present token falls as 1/n: the error passes "
            "0.1 at length 12, trained to 8.",
            "A norm on the attention output before the add (res_post, peri) keeps it at n^-1/2 and "
            "the error below 0.05 at every length.",
            "A norm after the add (post) does the same up to the crossover s* = (p/b)² = 18.",
            "One bound is violated: see the findings <below>.",
        ),
    )


@pytest.fixture(scope="session")
def patterns() -> dict[int, np.ndarray]:
    """Causal patterns of two heads at four lengths."""
    rng = np.random.default_rng(1)
    found = {}
    for length in (4, 8, 16, 31):
        scores = rng.standard_normal((2, length, length)) * np.array([0.3, 2.0])[:, None, None]
        weights = np.exp(scores) * np.tril(np.ones((length, length)))
        found[length] = weights / weights.sum(axis=-1, keepdims=True)
    return found


LAYERS, HEADS = 30, 9
N_KEY = 2 ** np.arange(1, 13)
KINDS = ("sink", "local", "dispersing", "holding", "sharpening")


def kind_of_head(layer, head):
    """Early layers disperse, the middle is mixed, late layers hold sinks."""
    if layer < 6:
        return "dispersing" if head % 3 else "local"
    if layer > 20:
        return "sink" if head % 4 else "holding"
    return KINDS[(2 * layer + 3 * head) % 5]


def slope_of_head(layer, head):
    """The dispersion slope that the head was given; a different one for every head."""
    rank = (layer * HEADS + head) / (LAYERS * HEADS)
    base = {"sink": 0.25, "local": 0.1, "dispersing": 0.62, "holding": 0.1, "sharpening": -0.06}
    kind = kind_of_head(layer, head)
    return base[kind] + {"holding": 0.1, "sharpening": 0.02}.get(kind, 0.4) * (rank - 0.5)


def rows_of_head(layer, head, n_key=N_KEY):
    """The rows of one head at every length."""
    kind, slope = kind_of_head(layer, head), slope_of_head(layer, head)
    rng = np.random.default_rng(layer * 100 + head)
    n = n_key.astype(float)
    entropy = (0.68 if slope < 0 else 0.0) + slope * np.log(n)
    entropy = entropy + 1e-3 * rng.standard_normal(n.size)
    entropy = np.clip(entropy, 1e-3, np.log(n))
    values = {
        "entropy": (entropy, "nats"),
        "max_weight": (np.clip(np.exp(-entropy) * 1.1, 1 / n, 1), "ratio"),
        "effective_support": (np.clip(np.exp(0.95 * entropy), 1, n), "1"),
        "score_spread": (4.0 + 1.6 * (1 - slope) * np.log(n), "1"),
        "sink_mass": (np.full(n.size, 0.82) if kind == "sink" else 0.6 / n, "ratio"),
        "window_16_mass": (
            np.full(n.size, 0.7) if kind == "local" else np.minimum(1.0, 9.6 / n), "ratio"
        ),
    }  # fmt: skip
    for quantity, (means, unit) in values.items():
        for keys, mean in zip(n_key.tolist(), means.tolist(), strict=True):
            sem = abs(mean) * 0.01
            yield {
                "study": "audit",
                "checkpoint": "synthetic-135M",
                "task": "text",
                "length": keys,
                "n_key": keys,
                "layer": layer,
                "head": head,
                "site": f"decoder.{layer}.attn",
                "quantity": quantity,
                "unit": unit,
                "mean": mean,
                "sem": sem,
                "n_obs": 64,
                "min": mean - 3 * sem,
                "max": mean + 3 * sem,
            }


@pytest.fixture(scope="session")
def many_heads() -> pd.DataFrame:
    """A made-up profile of a large model: 30 layers of 9 heads at 12 lengths."""
    return table(
        row for layer in range(LAYERS) for head in range(HEADS) for row in rows_of_head(layer, head)
    )


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
# No name is resolved: nothing comes from elsewhere.
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, headless, that resolves no name; what is opened in it is skipped where it is not.

    CI must have it.
    """
    there = {"playwright": find_spec("playwright"), "chromium": CHROMIUM}
    missing = " and no ".join(name for name, found in there.items() if not found)
    if missing and not os.environ.get("CI"):
        pytest.skip(f"nothing is opened in a browser: there is no {missing}")
    assert not missing, f"CI must have a browser: there is no {missing}"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, list[str]]]:
    """Runs the command line; gives its status, what it printed, and its own lines of complaint."""

    def run(*arguments: object) -> tuple[int, str, list[str]]:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        own = [line for line in captured.err.splitlines() if line.startswith("resharpen: ")]
        return int(stop.value.code or 0), captured.out, own

    return run
