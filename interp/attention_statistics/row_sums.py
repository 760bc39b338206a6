"""One block of rows, read over its keys tile by tile: running maximum, sums, and their merging.

All sums are relative to the running maximum ``m`` of the row, in base 2: with
``d_j = t_j - m <= 0`` and ``w_j = 2 ** d_j``,
    total = sum w_j,  energy = sum w_j (-d_j),  square = sum w_j ** 2,
so that, with ``log2`` the natural logarithm of 2,
    entropy = log(total) + log2 * energy / total,    1 / sum_j a_j^2 = total ** 2 / square.
``shift`` is what was taken off all scores of the row beforehand. Every term is non-negative:
nothing cancels, however large the scores (the log-sum-exp identity of theory section 0,
``lse - E[s]``, loses all digits at scores of 1e4). The sums of tiles are added in float64; the
score deviation is merged from two-pass tile moments (Chan, Golub & LeVeque 1983).
"""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from .catalogue import Request
from .scores import HIDDEN

_LOG2 = math.log(2.0)


class RowSums:
    """Accumulates the rows ``[batch, head, query]`` of one block."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        request: Request | None,
        mass_names: Iterable[str],
        output: Tensor | None,
        device: torch.device,
    ):
        """Start with no key seen. ``output`` ``[lane, row, d_value]`` (zeros) collects ``sum w v``;
        ``request=None`` collects the output alone."""
        self.base = frozenset() if request is None else request.base
        self.top = () if request is None else request.top
        self.output = output
        self.max = torch.full((*shape, 1), HIDDEN, dtype=torch.float64, device=device)
        zero = torch.zeros_like(self.max)
        self.total, self.count, self.shift = zero, zero, zero
        self.energy, self.square = zero, zero
        self.min = zero - HIDDEN
        self.mean, self.moment = zero, zero
        self.first, self.first_known = zero, False
        self.largest = self.max.expand(*shape, max(self.top, default=1)).clone()
        self.masses = {name: zero for name in mass_names}

    def add(
        self,
        scores: Tensor,
        scratch: tuple[Tensor, Tensor],
        visible: Tensor | None,
        value: Tensor | None,
        indicators: Mapping[str, tuple[slice, Tensor]],
    ) -> None:
        """Take in one tile of keys; the contents of ``scores`` and ``scratch`` are used up.

        ``scores`` ``[batch, head, query, key]`` base 2, HIDDEN or lower where ``visible`` is False
        (None = all visible); ``scratch`` two arrays of that shape in the dtype of the weights, the
        first may be ``scores`` itself; ``value`` ``[lane, key, d_value]``; ``indicators`` by name
        a slice of the tile's keys and which of them a mass sums, 0/1.
        """
        differences, weights = scratch
        seen = scores.shape[-1] if visible is None else visible.sum(-1, keepdim=True)
        if not self.base.isdisjoint(("score_spread", "score_deviation")):
            shown = None if visible is None else visible.to(scores.dtype)
            spare = weights if weights.dtype is scores.dtype else torch.empty_like(scores)
            if "score_spread" in self.base:
                self._take_minimum(scores, spare, shown)
            if "score_deviation" in self.base:
                self._take_moments(scores, spare, shown, seen)
        if "sink_mass" in self.base and not self.first_known:
            self._take_first(scores, visible)
        self.count = self.count + seen
        peak = scores.amax(-1, keepdim=True)
        if self.top:
            self._take_largest(scores, peak)
        peak = torch.maximum(self.max, peak.double())
        torch.sub(scores, peak.to(scores.dtype), out=differences)
        torch.exp2(differences, out=weights)
        step = self.max - peak
        decay = torch.exp2(step)
        self._take_sums(step, decay, differences, weights)
        for name, mass in self.masses.items():
            self.masses[name] = mass * decay
            if name in indicators:
                part, chosen = indicators[name]
                self.masses[name] += (weights[..., part] * chosen).sum(-1, keepdim=True)
        if self.output is not None and value is not None:
            flat = weights.view(*self.output.shape[:2], -1)
            self.output.mul_(self._by_lane(decay)).baddbmm_(flat, value)
        self.max = peak

    def _take_sums(self, step: Tensor, decay: Tensor, differences: Tensor, weights: Tensor) -> None:
        """Total, energy and square, those so far shrunk by ``decay = 2 ** step``."""
        if "entropy" in self.base:
            gained = torch.mul(differences, weights, out=differences).sum(-1, keepdim=True)
            self.energy = decay * (self.energy - step * self.total) - gained
        if "effective_support" in self.base:
            norm = torch.linalg.vector_norm(weights, dim=-1, keepdim=True).double()
            self.square = decay.square() * self.square + norm.square()
        self.total = decay * self.total + weights.sum(-1, keepdim=True)

    def _take_largest(self, scores: Tensor, peak: Tensor) -> None:
        """The largest scores so far, descending; rows that the tile cannot change are left out."""
        count = self.largest.shape[-1]
        changed = (peak > self.largest[..., -1:]).flatten().nonzero().squeeze(-1)
        fresh = scores.flatten(0, -2)
        if len(changed) < len(fresh):
            fresh = fresh[changed]
        fresh = fresh.topk(min(count, fresh.shape[-1]), -1).values.double()
        held = self.largest.flatten(0, -2)
        held[changed] = torch.cat([held[changed], fresh], -1).topk(count, -1).values

    def _take_minimum(self, scores: Tensor, spare: Tensor, shown: Tensor | None) -> None:
        """The least visible score: hidden ones are lifted from HIDDEN to -HIDDEN."""
        if shown is not None:
            scores = torch.add(scores, (1.0 - shown) * (-4.0 * HIDDEN), out=spare)
        self.min = torch.minimum(self.min, scores.amin(-1, keepdim=True).double())

    def _take_moments(
        self, scores: Tensor, spare: Tensor, shown: Tensor | None, seen: Tensor | int
    ) -> None:
        """Mean and centred second moment of the visible scores, merged with those before."""
        if shown is None:
            mean = scores.mean(-1, keepdim=True)
            centred = torch.sub(scores, mean, out=spare)
        else:
            kept = torch.mul(scores, shown, out=spare).sum(-1, keepdim=True, dtype=scores.dtype)
            mean = kept / shown.sum(-1, keepdim=True).clamp(min=1.0)
            centred = torch.sub(scores, mean, out=spare).mul_(shown)
        moment = torch.linalg.vector_norm(centred, dim=-1, keepdim=True).double().square()
        step = mean.double() - self.mean
        share = seen / (self.count + seen).clamp(min=1.0)
        self.mean = self.mean + step * share
        self.moment = self.moment + moment + step.square() * self.count * share

    def _take_first(self, scores: Tensor, visible: Tensor | None) -> None:
        """The score of the first visible key, for rows that have seen none so far."""
        fresh = self.count == 0
        if visible is None:
            score, self.first_known = scores[..., :1], True
        else:
            index = visible.to(torch.uint8).argmax(-1, keepdim=True)
            score = scores.gather(-1, index.expand(*scores.shape[:-1], 1))
            fresh = fresh & visible.any(-1, keepdim=True)
        self.first = torch.where(fresh, score.double(), self.first)

    def finish(self) -> dict[str, Tensor]:
        """Base statistics ``[batch, head, query]`` by name, natural units, NaN without a key."""
        total, found = self.total, self.count > 0
        top = self.max + self.shift
        result = {"log_partition": _LOG2 * top + total.log(), "max_weight": 1.0 / total}
        if "entropy" in self.base:
            result["entropy"] = total.log() + _LOG2 * self.energy / total
        if "effective_support" in self.base:
            result["effective_support"] = total.square() / self.square
        if "score_spread" in self.base:
            result["score_spread"] = _LOG2 * (self.max - self.min)
        if "score_deviation" in self.base:
            result["score_deviation"] = _LOG2 * (self.moment / self.count.clamp(min=1.0)).sqrt()
        if "sink_mass" in self.base:
            result["sink_mass"] = torch.exp2(self.first - self.max) / total
        if self.top:
            best = torch.exp2(self.largest - self.max) / total
            result |= {f"top_{k}_mass": best[..., :k].sum(-1, keepdim=True) for k in self.top}
        result |= {name: mass / total for name, mass in self.masses.items()}
        return {
            name: torch.where(found, entry, torch.nan).squeeze(-1) for name, entry in result.items()
        }

    def finish_output(self, sinks: Tensor | None) -> Tensor:
        """The attention output ``[lane, row, d_value]``; zero for a row that sees no key.

        ``sinks`` ``[head, 1, 1]``, learned logits in base 2, enlarge the denominator.
        """
        assert self.output is not None
        whole = (
            self.total if sinks is None else self.total + torch.exp2(sinks - self.max - self.shift)
        )
        share = torch.where(self.count > 0, 1.0 / whole, 0.0)
        return self.output.mul_(self._by_lane(share))

    def _by_lane(self, factor: Tensor) -> Tensor:
        """A factor of every row in the shape and dtype of the output."""
        assert self.output is not None
        return factor.view(*self.output.shape[:2], 1).to(self.output.dtype)
