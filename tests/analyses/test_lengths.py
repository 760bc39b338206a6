"""The lengths that are run where none are given: within what task, probe and model allow."""

import pytest

from resharpen.analyses.lengths import default_lengths, fitting_lengths
from resharpen.models.probes import TaskProbe
from resharpen.models.tasks import TASKS


@pytest.mark.parametrize("name", list(TASKS))
def test_every_task_is_defined_at_its_usual_lengths(name: str) -> None:
    task = TASKS[name]()
    lengths = default_lengths(task)
    assert lengths[0] == task.min_length
    assert list(lengths) == sorted(set(lengths))
    probe = TaskProbe(task)
    for length in lengths:
        probe.check_length(length)
    with pytest.raises(ValueError, match=rf"of at least {task.min_length}"):
        probe.check_length(task.min_length - 1)


def test_the_model_limits_the_positions_of_an_input() -> None:
    probe = TaskProbe(TASKS["copy"]())
    assert fitting_lengths(probe, 10) == (1, 2, 3, 4, 5)  # n symbols take 2n positions
    with pytest.raises(ValueError, match="give lengths="):
        fitting_lengths(probe, 1)
