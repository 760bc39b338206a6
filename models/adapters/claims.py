"""What a user says of a model, held against what one short run shows.

The number of layers and heads, the width of the stream and the vocabulary of a
:func:`~resharpen.models.adapters.describe` are claims; every table and sentence repeats them. So
they are compared with the records before the adapter is used.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..observed import AttentionSeen, PatternSeen, StreamSeen
from .adapter import Adapter
from .probe import probe_tokens
from .tensors import first_tensor


@dataclass
class Sighting:
    """What one run showed.

    Attributes:
        layers: Layer of each record of attention, in order.
        n_heads: Query heads of each.
        n_kv_heads: Key heads of each that shows its keys.
        widths: Last axis of each stream.
    """

    layers: list[int] = field(default_factory=list)
    n_heads: list[int] = field(default_factory=list)
    n_kv_heads: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    def attention(self, seen: AttentionSeen) -> None:
        """Note an attention record."""
        self.layers.append(seen.layer)
        self.n_heads.append(seen.query.shape[1])
        self.n_kv_heads.append(seen.key.shape[1])

    def pattern(self, seen: PatternSeen) -> None:
        """Note a pattern."""
        self.layers.append(seen.layer)
        self.n_heads.append(seen.weights.shape[1])

    def stream(self, seen: StreamSeen) -> None:
        """Note a stream."""
        self.widths.append(seen.stream.shape[-1])


def check_runs(adapter: Adapter) -> None:
    """Run the highest token id, and see that the blocks take the stream and return it.

    Raises:
        ValueError: If the vocabulary is smaller than described, a block is none, or there are more
            or fewer calls of blocks than layers.
    """
    facts = adapter.description
    tokens = torch.full_like(probe_tokens(facts), facts.d_vocab - 1)
    calls: list[str | None] = []

    def look(module: torch.nn.Module, args: object, kwargs: object, output: object) -> None:
        calls.append(_why_no_block(module, first_tensor((args, kwargs)), first_tensor(output)))

    blocks = dict.fromkeys(adapter.blocks)
    handles = [block.register_forward_hook(look, with_kwargs=True) for block in blocks]
    try:
        adapter.run_plain(tokens)
    except IndexError as error:
        raise ValueError(
            f"the description says d_vocab={facts.d_vocab}, but {facts.architecture} cannot look "
            f"up token {facts.d_vocab - 1} ({error}): give the number of rows of its embedding"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    wrong = next((reason for reason in calls if reason is not None), None)
    if wrong is not None:
        raise ValueError(
            f"blocks= must be the layers, which take the residual stream and return it, but {wrong}"
        )
    if blocks and len(calls) != facts.n_layers:
        raise ValueError(
            f"the description says n_layers={facts.n_layers}, but one run of {facts.architecture} "
            f"calls its blocks {len(calls)} times: give n_layers={len(calls)}, or other blocks="
        )


def check_claims(adapter: Adapter, seen: Sighting) -> None:
    """Compare the description with what was seen; fill in what it left open.

    Raises:
        ValueError: If a number differs; the sentence has both.
    """
    facts = adapter.description
    layers, n_layers = sorted(set(seen.layers)), facts.n_layers
    # Where blocks are known, some may have no attention to show (state-space layers).
    missing = len(layers) < n_layers and (not adapter.blocks or len(layers) < len(seen.layers))
    if layers[0] < 0 or layers[-1] >= n_layers or missing:
        raise ValueError(
            f"the description says n_layers={n_layers}, but {type(adapter).__name__} shows "
            f"attention {len(seen.layers)} times, as layers {', '.join(map(str, layers))}: each "
            "layer must be shown under its own number, from 0"
        )
    claims = [("n_heads", facts.n_heads, max(seen.n_heads), "query heads")]
    if seen.n_kv_heads:
        n_kv_heads = max(seen.n_kv_heads)
        if facts.n_kv_heads == facts.n_heads:  # as it is where nothing was said
            facts = replace(facts, n_kv_heads=n_kv_heads)
        claims.append(("n_kv_heads", facts.n_kv_heads, n_kv_heads, "key heads"))
    if seen.widths:
        width = max(seen.widths)
        claims.append(("d_model", facts.d_model or width, width, "coordinates in its stream"))
        facts = replace(facts, d_model=facts.d_model or width)
    for name, said, found, what in claims:
        if said != found:
            raise ValueError(
                f"the description says {name}={said}, but {facts.architecture} has {found} {what}: "
                f"give {name}={found}"
            )
    adapter.description = facts


def _why_no_block(module: torch.nn.Module, given: Tensor | None, made: Tensor | None) -> str | None:
    """Why a module is no block, by what goes in and out; ``None`` if it may be one."""
    name = type(module).__name__
    if given is None:
        return f"{name} takes no floating-point tensor"
    if made is None or given.shape != made.shape:
        returned = "none" if made is None else str(list(made.shape))
        return f"{name} takes a tensor {list(given.shape)} and returns {returned}"
    return None
