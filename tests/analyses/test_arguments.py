"""The same slip gets the same sentence from everything that measures a model."""

from dataclasses import replace

import pandas as pd
import pytest

from resharpen.analyses import audit, audit_adapted, diagnose, explore
from resharpen.analyses.exploring import open_explorer
from resharpen.analyses.figures import (
    plot_dispersion,
    plot_displacement,
    plot_error,
    plot_head_map,
    plot_limits,
    plot_rescaling,
    plot_score_laws,
)
from resharpen.analyses.limits import measure_limits
from resharpen.analyses.score_laws import LawThresholds
from resharpen.analyses.thresholds import HeadThresholds, Thresholds
from resharpen.models import SetComplement, Transformer, TransformerConfig
from resharpen.models.probes import RandomTokens
from resharpen.models.tasks import Copy

MODEL = Transformer(TransformerConfig(d_vocab=33))

MEASURE = {
    "audit": lambda **given: audit(MODEL, **given),
    "audit_adapted": lambda **given: audit_adapted(MODEL, **given),
    "open_explorer": lambda **given: open_explorer(MODEL, **given),
    "diagnose": lambda **given: diagnose(MODEL, 0, 0, **given),
    "limits": lambda **given: measure_limits(MODEL, 0, 0, **given),
}

SLIPS = [
    ({"lengths": 8}, TypeError, r"^lengths must be .* \(8,\) for one length; got 8$"),
    ({"lengths": "abc"}, TypeError, r"^lengths must be a sequence of whole numbers.* got 'abc'$"),
    ({"lengths": ()}, ValueError, "^lengths must hold at least one length$"),
    ({"lengths": (8, -1)}, ValueError, "^a length must be a whole number, 1 or more; got -1$"),
    ({"n_sequences": "8"}, ValueError, "^n_sequences must be a whole number, 1 or more; got '8'$"),
    ({"n_sequences": 0}, ValueError, "^n_sequences must be a whole number, 1 or more; got 0$"),
    ({"seed": "a"}, ValueError, "^seed must be a whole number, 0 or more.*; got 'a'$"),
    ({"probe": 3}, TypeError, "^probe must be one of repeated, .*, or an object .*; got 3$"),
    ({"probe": RandomTokens}, TypeError, "^probe must be .*; got the class RandomTokens$"),
    ({"probe": "repeat"}, ValueError, "^unknown probe 'repeat': expected one of repeated, needle"),
]


@pytest.mark.parametrize("measure", MEASURE)
@pytest.mark.parametrize(("given", "error", "words"), SLIPS)
def test_what_no_measurement_takes_is_refused_in_one_sentence(measure, given, error, words):
    with pytest.raises(error, match=words):
        MEASURE[measure](**given)


@pytest.mark.parametrize(
    ("measure", "kind"),
    [
        ("audit", "Thresholds"),
        ("audit_adapted", "HeadThresholds"),
        ("open_explorer", "HeadThresholds"),
        ("diagnose", "LawThresholds"),
    ],
)
def test_thresholds_are_no_dictionary(measure, kind):
    with pytest.raises(TypeError, match=rf"^thresholds must be made with {kind}\(\.\.\.\); got"):
        MEASURE[measure](thresholds={"disperses": 0.3})


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("copy", r"such as Copy\(\.\.\.\) .*; got 'copy'$"),
        ("set-complement", r"such as SetComplement\(\.\.\.\) .*; got 'set-complement'$"),
        (Copy, r"such as Copy\(\.\.\.\) .*; got the class Copy$"),
        (3, r"such as SetComplement\(32\) .*; got 3$"),
        ([3], r"such as SetComplement\(32\) .*; got \[3\]$"),
    ],
)
def test_a_task_is_an_object(task, words):
    with pytest.raises(TypeError, match=rf"^task must be a task object, {words}"):
        audit(MODEL, task=task)


def test_no_sequences_at_all_are_refused_of_a_task_too():
    with pytest.raises(ValueError, match="n_sequences must be a whole number, 1 or more; got 0"):
        audit(MODEL, task=SetComplement(32), n_sequences=0)


def test_a_misspelt_argument_names_the_function_that_was_called():
    with pytest.raises(
        TypeError, match=r"^explore\(\) got .* 'lenghts': did you mean 'lengths'\?$"
    ):
        explore(MODEL, lenghts=(8,))


@pytest.mark.parametrize("kind", [Thresholds, HeadThresholds, LawThresholds])
def test_thresholds_are_finite_numbers(kind):
    name = next(iter(kind.__dataclass_fields__))
    for wrong in ("a", None, True, (0.2,)):
        with pytest.raises(TypeError, match=f"^the {name} threshold must be a number; got"):
            replace(kind(), **{name: wrong})
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^the {name} threshold must be a finite number"):
            replace(kind(), **{name: wrong})


@pytest.mark.parametrize(
    "plot",
    [
        plot_dispersion,
        plot_displacement,
        plot_error,
        plot_limits,
        plot_rescaling,
        plot_score_laws,
        lambda table: plot_head_map(table, audit_adapted(MODEL, lengths=(8, 16)).classes),
    ],
)
def test_a_figure_is_drawn_from_a_table(plot):
    result = audit(MODEL, lengths=(8, 16), n_sequences=1)
    with pytest.raises(TypeError, match=r"got StudyResult: pass its attribute \.table$"):
        plot(result)
    with pytest.raises(TypeError, match=r"got int: pass the table of a result$"):
        plot(3)
    with pytest.raises(ValueError, match=r"this one lacks every column$"):
        plot(pd.DataFrame())
    with pytest.raises(ValueError, match=r"this one lacks status$"):
        plot(result.table.drop(columns="status"))
