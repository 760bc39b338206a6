"""Every statistic, and the attention output, in one pass over tiles of queries and keys.

The pass is flash attention written in tensor operations: a tile of scores is made, exponentiated,
multiplied with the values, and forgotten; while it lies in the cache, the row sums of the
statistics are taken from it too, which is cheap beside the two matrix products.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ...models.facts import Facts
from .catalogue import Request
from .row_sums import RowSums
from .rule import AttentionRule
from .scores import HIDDEN, LOG2E, Scoring
from .visibility import Visibility, take_tile
from .workers import run_jobs, split_cores

FLOAT32_SCORE_LIMIT = 64.0
"""Largest ``scale * |q| * |k|`` of a block whose scores are formed in float32. The rounding error
of a float32 score was measured at up to 3 * 2**-24 times that bound (d_head 64 to 256, 4 million
scores), 1.2e-5 here at the worst; beyond it the product is formed in float64 (the block takes about
1.8 times as long), and only the differences to the row's maximum are rounded to float32."""


@dataclass(frozen=True)
class Tile(Facts):
    """The shape of a tile: at most ``rows`` queries, ``keys`` keys and ``scores`` scores in all.

    A tile of fewer scores takes several heads and batch elements together. It holds one head's
    ``rows * keys`` scores at least (times the query heads that share a key head).
    """

    rows: int
    keys: int
    scores: int

    def __post_init__(self) -> None:
        """Refuse a size below 1."""
        if min(self.rows, self.keys, self.scores) < 1:
            raise ValueError(f"expected positive tile sizes, got {self}")


def default_tile(device: torch.device, cores: int) -> Tile:
    """The tile for a thread of so many CPU cores.

    Time of a call, output and two statistics, in plain fused calls (2 cores of an AMD EPYC with
    1 MiB of L2 each, torch 2.13, 8 heads of 64, n = 8192; ``benchmarks/attention_statistics.py
    --designs``): by rows x keys, with 2**17, 2**18, 2**19 and 2**20 scores in a tile,

        128 x 512    2.54  2.15  1.59  1.60
        256 x 512    2.23  1.76  1.48  1.49
        256 x 1024   2.46  2.42  1.68  1.73
        128 x 2048   3.86  2.44  2.09  1.62

    Small tiles pay for the number of operations, large ones for leaving the cache. For other
    devices the tile is large enough to fill them, and not measured.
    """
    if device.type != "cpu":
        return Tile(rows=512, keys=4096, scores=2**25)
    return Tile(rows=256, keys=512, scores=2**19 * cores)


@dataclass(frozen=True)
class _Chunk:
    """Consecutive lanes (pairs of batch element and key head) that one tile takes together."""

    lanes: slice
    batches: slice
    heads: slice

    @property
    def rows_shape(self) -> tuple[int, int]:
        """(batch, head) of the chunk."""
        return self.batches.stop - self.batches.start, self.heads.stop - self.heads.start


@dataclass(frozen=True)
class _Block:
    """A block of rows and what is measured on it; ``None`` is the output alone."""

    chunk: _Chunk
    queries: slice
    request: Request | None


class BlockwisePass:
    """One call's arrays, cut into lanes, and the buffers that its tiles reuse."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None,
        rule: AttentionRule,
        marked: Mapping[str, Tensor],
        tile: Tile | None,
    ):
        """Lay the keys and values out by lane (contiguous, float32 or float64)."""
        self.batch, self.head, self.n_query, self.d_head = query.shape
        self.kv_head, self.n_key = key.shape[1:3]
        self.group = self.head // self.kv_head
        self.device = query.device
        self.dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
        lanes = self.batch * self.kv_head
        self.query = query.reshape(lanes, self.group, self.n_query, self.d_head)
        self.key = self._by_lane(key)
        self.center = self._key_center() if rule.softcap is None else None
        self.value = None if value is None else self._by_lane(value)
        self.visibility = Visibility(rule, self.n_query, self.n_key, self.device)
        self.scoring = Scoring.of(rule, self.d_head, self.n_key - self.n_query)
        self.marked = marked
        self.sinks = None if rule.sinks is None else rule.sinks.double().view(-1, 1, 1) * LOG2E
        n_scores = self.batch * self.head * self.n_query * self.n_key
        self.workers, self.cores = split_cores(self.device, n_scores)
        tile = default_tile(self.device, self.cores) if tile is None else tile
        self.keys = min(tile.keys, self.n_key)
        room = max(1, tile.scores // (self.group * self.keys))
        self.rows = min(tile.rows, self.n_query, max(room, 16))
        self.per_chunk = max(1, room // self.rows)
        self.output: Tensor | None = None
        self._held = threading.local()
        norms = torch.linalg.vector_norm(self.query, dim=-1, dtype=self.dtype).amax(1)
        keys = self.key if self.center is None else self.key - self.center
        longest = torch.linalg.vector_norm(keys, dim=-1).amax(-1, keepdim=True)
        self.bound = norms * longest * abs(self.scoring.scale)

    def run(self, request: Request, first: int) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
        """Statistics of the queries from ``first`` on, their ``n_key``, and every query's output.

        Returns base statistics by name and ``n_key``, ``[batch, head, query - first]``, and the
        output ``[batch, head, query, d_value]`` if there are values.
        """
        shape = (self.batch, self.head, self.n_query - first)
        results: dict[str, Tensor] = {}
        n_key = torch.zeros(shape, dtype=torch.int64, device=self.device)
        if self.value is not None:
            sizes = (*self.query.shape[:3], self.value.shape[-1])
            self.output = torch.empty(sizes, dtype=self.dtype, device=self.device)
        spans: list[tuple[int, int, Request | None]] = [(first, self.n_query, request)]
        if self.value is not None and first:
            spans.append((0, first, None))
        jobs = [
            _Block(chunk, slice(low, min(low + self.rows, stop)), wanted)
            for start, stop, wanted in spans
            for low in range(start, stop, self.rows)
            for chunk in self._chunks()
        ]
        jobs.reverse()  # the rows that see most keys first, so that the cores finish together
        for block, (count, measured) in run_jobs(self._work, jobs, self.workers, self.cores):
            rows = slice(block.queries.start - first, block.queries.stop - first)
            place = (block.chunk.batches, block.chunk.heads, rows)
            for name, part in measured.items():
                if name not in results:
                    results[name] = torch.empty(shape, dtype=torch.float64, device=self.device)
                results[name][place] = part
            if measured:
                n_key[place] = count
        if self.output is None:
            return results, n_key, None
        return results, n_key, self.output.view(*shape[:2], self.n_query, -1)

    def _work(self, block: _Block) -> tuple[Tensor, dict[str, Tensor]]:
        """Measure one block and write its output: ``n_key`` and statistics of its rows."""
        sums = self._sums(block)
        if self.output is not None:
            sinks = None if self.sinks is None else self.sinks[block.chunk.heads]
            place = self.output[block.chunk.lanes, :, block.queries]
            place.copy_(sums.finish_output(sinks).view(place.shape))
        measured = {} if block.request is None else sums.finish()
        return sums.count.squeeze(-1).long(), measured

    def _by_lane(self, array: Tensor) -> Tensor:
        """``[batch, head, pos, width]`` as ``[lane, pos, width]`` in the dtype of the weights."""
        return array.to(self.dtype).reshape(-1, *array.shape[2:]).contiguous()

    def _key_center(self) -> Tensor:
        """The mean key of each lane ``[lane, 1, d_head]``, zero where it is not finite.

        Taken off every key it moves all scores of a row alike: no weight changes, and scores
        shrink (of SmolLM2-135M's blocks of rows 16 % exceed the float32 limit without, 2.5 % with).
        """
        center = self.key.mean(1, keepdim=True)
        return torch.where(center.isfinite().all(-1, keepdim=True), center, 0.0)

    def _chunks(self) -> Iterator[_Chunk]:
        """Lanes in tiles: several whole batch elements, or a part of the heads of one."""
        if self.per_chunk >= self.kv_head:
            step = self.per_chunk // self.kv_head
            for low in range(0, self.batch, step):
                batches = slice(low, min(low + step, self.batch))
                lanes = slice(batches.start * self.kv_head, batches.stop * self.kv_head)
                yield _Chunk(lanes, batches, slice(0, self.head))
            return
        for batch in range(self.batch):
            for low in range(0, self.kv_head, self.per_chunk):
                high = min(low + self.per_chunk, self.kv_head)
                lanes = slice(batch * self.kv_head + low, batch * self.kv_head + high)
                heads = slice(low * self.group, high * self.group)
                yield _Chunk(lanes, slice(batch, batch + 1), heads)

    def _sums(self, block: _Block) -> RowSums:
        """The sums of one block of rows over all its keys."""
        precise = torch.get_float32_matmul_precision() == "highest"
        if not (
            precise
            and bool(self.bound[block.chunk.lanes, block.queries].max() <= FLOAT32_SCORE_LIMIT)
        ):
            return self._read(block, torch.float64)
        sums = self._read(block, self.dtype)
        if self.scoring.bias is not None and self.dtype is not torch.float64:
            highest = torch.where(sums.count > 0, sums.max, 0.0).abs().max()
            if not bool(highest <= FLOAT32_SCORE_LIMIT * LOG2E):
                return self._read(block, torch.float64)
        return sums

    def _read(self, block: _Block, dtype: torch.dtype) -> RowSums:
        """Read the block's keys tile by tile, forming the scores in ``dtype``."""
        chunk, queries, request = block.chunk, block.queries, block.request
        height = queries.stop - queries.start
        lanes, rows = chunk.lanes.stop - chunk.lanes.start, self.group * height
        output = None
        if self.value is not None:
            width = self.value.shape[-1]
            output = torch.zeros(lanes, rows, width, dtype=self.dtype, device=self.device)
        names = [] if request is None else [f"window_{w}_mass" for w in request.windows]
        names += [] if request is None else list(self.marked)
        sums = RowSums((*chunk.rows_shape, height), request, names, output, self.device)
        query = self.query[chunk.lanes, :, queries].to(dtype) * self.scoring.query_factor()
        query = query.reshape(lanes, rows, self.d_head)
        center = None if self.center is None else self.center[chunk.lanes].to(dtype)
        if center is not None:
            moved = torch.bmm(query.double(), center.double().transpose(1, 2))
            sums.shift = moved.view(sums.max.shape)
        low, high = self.visibility.key_range(chunk.batches, queries.start, queries.stop)
        for start in range(low, high, self.keys):
            keys = slice(start, min(start + self.keys, high))
            place = (chunk.batches, chunk.heads, queries, keys)
            visible = self.visibility.tile(*place)
            bias = self.scoring.bias_tile(*place, query)
            if bias is not None:
                visible = _also_shown(visible, bias)
            if visible is False:
                continue
            shape = (*chunk.rows_shape, height, keys.stop - keys.start)
            flat = self._buffer("scores", dtype, (lanes, rows, shape[-1]))
            key = self.key[chunk.lanes, keys].to(dtype)
            key = key if center is None else key - center
            torch.bmm(query, key.transpose(1, 2), out=flat)
            scores = self.scoring.finish(flat.view(shape), bias)
            if isinstance(visible, Tensor):
                self._hide(scores, visible, chunk.lanes)
            differences = self._buffer("scores", self.dtype, shape)
            weights = self._buffer("weights", self.dtype, shape)
            sums.add(
                scores,
                (differences, weights),
                visible if isinstance(visible, Tensor) else None,
                None if self.value is None else self.value[chunk.lanes, keys],
                {} if request is None else self._indicators(request, *place),
            )
        return sums

    def _hide(self, scores: Tensor, visible: Tensor, lanes: slice) -> None:
        """HIDDEN or lower where not visible, in place; NaN and infinite scores included."""
        if bool(self.bound[lanes].isfinite().all()):
            scores.add_(torch.where(visible, 0.0, HIDDEN).to(scores.dtype))
        else:
            scores.masked_fill_(~visible, HIDDEN)

    def _buffer(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """This thread's reused array, of this shape, with whatever was left in it."""
        size = torch.Size(shape).numel()
        held = getattr(self._held, slot := f"{name} {dtype}", None)
        if held is None or held.numel() < size:
            held = torch.empty(size, dtype=dtype, device=self.device)
            setattr(self._held, slot, held)
        return held[:size].view(shape)

    def _indicators(
        self, request: Request, batches: slice, heads: slice, queries: slice, keys: slice
    ) -> dict[str, tuple[slice, Tensor]]:
        """Which keys of the tile each mass sums, 0/1; masses that have none here are left out."""
        chosen: dict[str, tuple[slice, Tensor]] = {}
        offset = self.n_key - self.n_query
        for size in request.windows:
            first, last = offset + queries.start, offset + queries.stop - 1
            low, high = max(keys.start, first - size + 1), min(keys.stop, last + size)
            if low < high:
                query = torch.arange(first, last + 1, device=self.device)
                near = (query[:, None] - torch.arange(low, high, device=self.device)).abs() < size
                part = slice(low - keys.start, high - keys.start)
                chosen[f"window_{size}_mass"] = part, near.to(self.dtype)
        for name, array in self.marked.items():
            part = take_tile(array, batches, heads, queries, keys)
            if bool(part.any()):
                chosen[name] = slice(None), part.to(self.dtype)
        return chosen


def _also_shown(visible: Tensor | bool, bias: Tensor) -> Tensor | bool:
    """``visible`` without the keys that the bias hides."""
    shown = bias > HIDDEN
    if visible is False or bool(shown.all()):
        return visible
    both = shown if visible is True else shown & visible
    return both if bool(both.any()) else False
