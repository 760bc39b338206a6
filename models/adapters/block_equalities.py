"""The equalities between the tensors of one block; see :mod:`.layout` for what they say."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Call:
    """One call of a module: when it was entered and left, and copies of what went in and out."""

    module: nn.Module
    entered: int
    left: int
    inputs: list[Tensor]
    output: Tensor | None
    is_norm: bool
    address: int


class BlockAnalysis:
    """The equalities of one block.

    Attributes:
        parallel: Whether attention and MLP were found to be added to the same stream; known after
            :meth:`places`.
    """

    def __init__(
        self,
        start: Tensor,
        end: Tensor,
        calls: list[Call],
        attention: set[nn.Module],
        tolerance: float,
    ) -> None:
        """Take what went into the block, what came out, and the calls between."""
        self.start = start
        self.end, self.tolerance = end, tolerance
        self.core = next((call for call in calls if call.module in attention), None)
        self.norms = sorted((call for call in calls if call.is_norm), key=lambda c: c.entered)
        self.made = [
            (call, like)
            for call in calls
            if (like := _shaped_like(call.output, self.start)) is not None
        ]
        self.parallel = False

    def places(self) -> list[tuple[Call, str, str | None]]:
        """Each norm's call, position and sub-layer."""
        inner = [norm for norm in self.norms if self._in_core(norm)]
        outer = [norm for norm in self.norms if norm not in inner]
        stream: list[Call] = []
        known = [self.start]
        positions: dict[int, str] = {}
        for norm in outer:
            given = _shaped_like(norm.inputs[0], self.start)
            if given is None:
                positions[id(norm)] = "unknown"
            elif self._on_stream(given, known, norm.entered):
                # The stream goes on from the norm's input or output; which, is found below.
                made = _shaped_like(norm.output, self.start)
                known += [given] if made is None else [given, made]
                stream.append(norm)
            else:
                came = any(
                    _scaled_error(given, made) < self.tolerance
                    for call, made in self.made
                    if call.left <= norm.entered
                )
                positions[id(norm)] = "after" if came else "unknown"
        for index, norm in enumerate(stream):
            positions[id(norm)] = self._continuation(norm, stream[index + 1 :])
        found: list[tuple[Call, str, str | None]] = [
            (norm, "query_key", "attention") for norm in inner
        ]
        seen: list[str] = []
        for norm in outer:
            position = positions[id(norm)]
            sublayer = self._sublayer(norm, position, seen.count(position))
            seen.append(position)
            found.append((norm, position, sublayer))
        shared = [norm.address for norm in stream if positions[id(norm)] == "before"]
        self.parallel |= len(shared) > 1 and len(set(shared)) == 1
        return found

    def _in_core(self, norm: Call) -> bool:
        core = self.core
        return (
            core is not None
            and core.entered < norm.entered
            and norm.left < core.left
            and (
                _shaped_like(norm.inputs[0], self.start) is None
                or not self._on_stream(norm.inputs[0], [self.start], norm.entered)
            )
        )

    def _on_stream(self, given: Tensor, known: list[Tensor], when: int) -> bool:
        if any(relative_error(given, point) < self.tolerance for point in known):
            return True
        return any(
            _sum_error(given, point, [made]) < self.tolerance
            for point in known
            for call, made in self.made
            if call.left <= when and relative_error(made, point) > self.tolerance
        )

    def _continuation(self, norm: Call, later: list[Call]) -> str:
        before = _shaped_like(norm.inputs[0], self.start)
        after = _shaped_like(norm.output, self.start)
        assert before is not None and after is not None
        added = [made for call, made in self.made if call.left > norm.left]
        goals = [_shaped_like(call.inputs[0], self.start) for call in later] + [self.end]
        for goal in (goal for goal in goals if goal is not None):
            errors = {
                name: min(
                    [relative_error(goal, point)]
                    + [_sum_error(goal, point, [made]) for made in added]
                )
                for name, point in (("before", before), ("stream", after))
            }
            best = min(errors, key=lambda name: errors[name])
            if errors[best] < self.tolerance:
                return best
        pairs = itertools.combinations([made for _, made in self.made], 2)
        if any(_sum_error(self.end, before, list(pair)) < self.tolerance for pair in pairs):
            self.parallel = True
            return "before"
        return "unknown"

    def _sublayer(self, norm: Call, position: str, already: int) -> str | None:
        if position == "unknown" or self.core is None:
            return None
        if position == "before":
            output = norm.output
            first = norm.left <= self.core.entered
            fed = (
                first
                and output is not None
                and any(
                    given.shape == output.shape and relative_error(given, output) < self.tolerance
                    for given in self.core.inputs
                )
            )
            return "attention" if fed else "mlp"
        return "attention" if already == 0 and norm.entered >= self.core.entered else "mlp"


def plain_copy(tensor: Tensor) -> Tensor:
    """A float32 copy on the CPU."""
    return tensor.detach().to("cpu", torch.float32, copy=True)


def _shaped_like(tensor: Tensor | None, stream: Tensor) -> Tensor | None:
    """The tensor in the stream's shape (a mixture of experts flattens it), or ``None``."""
    if tensor is None or tensor.shape[-1:] != stream.shape[-1:] or tensor.numel() != stream.numel():
        return None
    return tensor.reshape(stream.shape)


def equality_tolerance(tensor: Tensor) -> float:
    """Relative error up to which two tensors of this dtype count as equal."""
    return 1e-4 if tensor.dtype in (torch.float32, torch.float64) else 3e-2


def relative_error(one: Tensor, other: Tensor) -> float:
    """Norm of the difference relative to the first norm; infinite for different shapes."""
    if one.shape != other.shape:
        return float("inf")
    return float((one - other).norm() / one.norm().clamp_min(1e-30))


def _scaled_error(one: Tensor, other: Tensor) -> float:
    return _sum_error(one, torch.zeros_like(one), [other])


def _sum_error(goal: Tensor, point: Tensor, parts: list[Tensor]) -> float:
    """Relative error of the best ``point + sum c_i part_i`` as an approximation of ``goal``."""
    if goal.shape != point.shape:
        return float("inf")
    columns = torch.stack([part.flatten() for part in parts], dim=1).double()
    rest = (goal - point).flatten().double()
    gram = columns.T @ columns
    gram.diagonal().clamp_(min=1e-30)
    factors = torch.linalg.lstsq(gram, (columns.T @ rest)[:, None]).solution[:, 0]
    return float((rest - columns @ factors).norm() / goal.double().norm().clamp_min(1e-30))
