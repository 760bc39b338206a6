"""Trial i of a space, drawn from the space's seed and i alone. Imports no torch.

Every field has a random stream of its own, keyed by (seed, i, the field's name): asking for more
trials extends the list, the order in which trials run does not matter, and a field that is added
to the file, or moved in it, leaves the others as they were.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .distributions import Fixed, SameAs
from .space import Space

__all__ = ["Draw", "draw", "fresh_seeds"]


@dataclass(frozen=True)
class Draw:
    """One point of the space.

    Attributes:
        index: Number of the trial, from 0.
        seed: Seed of its training.
        values: Every field of the space by `table.field`, in the order of the file.
    """

    index: int
    seed: int
    values: Mapping[str, Any]

    def table(self, name: str) -> dict[str, Any]:
        """The fields of one table of the file, by their own names."""
        return {
            key.partition(".")[2]: value
            for key, value in self.values.items()
            if key.startswith(f"{name}.")
        }


def draw(space: Space, index: int) -> Draw:
    """Draw one trial."""
    values: dict[str, Any] = {}
    for key, one in space.fields.items():
        if isinstance(one, Fixed):
            values[key] = one.value
        elif not isinstance(one, SameAs):
            values[key] = one.at(_stream(space.seed, index, key).random())
    copied = {
        key: values[one.other] for key, one in space.fields.items() if isinstance(one, SameAs)
    }
    values = {key: {**values, **copied}[key] for key in space.fields}
    return Draw(index, _seed(_stream(space.seed, index, "seed")), values)


def fresh_seeds(space: Space, index: int, count: int) -> tuple[int, ...]:
    """Seeds for a trial that is run again, none of them its own."""
    stream, found = _stream(space.seed, index, "fresh seeds"), [draw(space, index).seed]
    while len(found) <= count:
        seed = _seed(stream)
        if seed not in found:
            found.append(seed)
    return tuple(found[1:])


def _seed(stream: np.random.Generator) -> int:
    return int(stream.integers(2**31))


def _stream(seed: int, index: int, name: str) -> np.random.Generator:
    """The random stream of a name: counter-based, the same on every machine."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, index, key))))
