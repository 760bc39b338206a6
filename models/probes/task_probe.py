"""A model's own task as a probe: its inputs, and one draw of the exact next token as the label.

``length`` is the task's: with a beginning-of-sequence token there is one position more. A task may
call many keys relevant (Set Complement: all of them), so no single key is named here; the sweep of
:mod:`resharpen.interp.sweeping` measures a task's relevant mass. Worked example and degenerate
lengths are the task's own.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ..facts import Facts
from ..tasks import Task
from .batch import NO_KEY, ProbeBatch


@dataclass(frozen=True)
class TaskProbe(Facts):
    """A task of :data:`resharpen.models.tasks.TASKS` as a probe.

    Attributes:
        task: The task.
    """

    name: ClassVar[str] = "task"
    nested: ClassVar[bool] = False
    task: Task

    def check_length(self, length: int) -> None:
        """Refuse a length at which the task is not defined.

        Raises:
            ValueError: If it is shorter or longer than the task allows, or none of its sequences
                has this length.
        """
        self.task.check_length(length)

    def sample(self, generator: np.random.Generator, batch: int, length: int) -> ProbeBatch:
        """Draw sequences of the task.

        Raises:
            ValueError: As the task's own ``sample``.
        """
        drawn = self.task.sample(generator, batch, length)
        nothing = torch.full_like(drawn.tokens, NO_KEY)
        return ProbeBatch(drawn.tokens, nothing, drawn.next_tokens, length)

    def to_dict(self) -> dict[str, Any]:
        """Name, and the task's name and parameters."""
        return {"name": self.name, "task": self.task.to_dict()}
