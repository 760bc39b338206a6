"""What an adapter says about its model before anything is measured."""

from dataclasses import dataclass

from torch import nn

from ..facts import Facts
from .digest import digest_weights


@dataclass(frozen=True, repr=False)
class Description(Facts):
    """A model in a dozen facts, found from the model itself where they can be.

    Attributes:
        architecture: Class name of the model.
        n_layers: Number of blocks.
        n_heads: Query heads a layer.
        n_kv_heads: Key and value heads a layer; fewer than ``n_heads`` with grouped queries.
        d_model: Width of the residual stream, or ``None`` if unknown.
        d_vocab: Number of input tokens.
        max_positions: Longest input that the model was made for, or ``None`` for no limit.
        positions_fixed: Whether a longer input is impossible (positions are a learned table).
        placement: Where the norms of a block stand: a key of
            :data:`resharpen.models.placements.PLACEMENTS`, ``"mixed"`` if blocks differ, or
            ``"unknown"``.
        parallel: Whether attention and MLP read the same stream and are added together.
        causal: Whether queries see no later key; ``None`` if layers differ or it is unknown.
        dtype: Dtype of the weights, such as ``"float32"``.
        n_parameters: Number of weights.
        digest: SHA-256 of the weights before anything was wrapped, or ``None`` if they cannot be
            read.
        padding: Whether padded inputs were found to give the same outputs as unpadded ones.
        packing: Whether packed documents were found to give what each gives alone.
        bos_token: Token id that the model expects first, or ``None``.
        pad_token: Token id of padding, or ``None``.
        capture: ``"attention"`` (queries and keys are seen) or ``"pattern"`` (finished weights).
        notes: What a reader of the report should know, one sentence each.
    """

    architecture: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int | None
    d_vocab: int
    max_positions: int | None = None
    positions_fixed: bool = False
    placement: str = "unknown"
    parallel: bool = False
    causal: bool | None = None
    dtype: str = "float32"
    n_parameters: int = 0
    digest: str | None = None
    padding: bool = False
    packing: bool = False
    bos_token: int | None = None
    pad_token: int | None = None
    capture: str = "attention"
    notes: tuple[str, ...] = ()


def describe(
    module: nn.Module,
    *,
    n_layers: int,
    n_heads: int,
    d_vocab: int,
    n_kv_heads: int | None = None,
    d_model: int | None = None,
    max_positions: int | None = None,
    positions_fixed: bool = False,
) -> Description:
    """Describe a model of your own; class, dtype, size and digest are read off the module.

    Args:
        module: The model.
        n_layers: Number of blocks.
        n_heads: Query heads a layer.
        d_vocab: Number of input tokens.
        n_kv_heads: Key and value heads a layer, if the model groups its queries.
        d_model: Width of the residual stream.
        max_positions: Longest input, or ``None`` for no limit.
        positions_fixed: Whether a longer input is impossible.

    The adapter's check compares the numbers with what the model shows, and fills in ``n_kv_heads``
    and ``d_model`` where they are not given.

    Raises:
        TypeError: If ``module`` is no module.
        ValueError: If a size is no whole number, 1 or more.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"describe takes the model, a torch.nn.Module, first; got {type(module).__name__}"
        )
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "d_vocab": d_vocab}
    optional = {"n_kv_heads": n_kv_heads, "d_model": d_model, "max_positions": max_positions}
    for name, size in {**sizes, **{k: v for k, v in optional.items() if v is not None}}.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more; got {size!r}")
    parameter = next(module.parameters(), None)
    return Description(
        architecture=type(module).__name__,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads if n_kv_heads is None else n_kv_heads,
        d_model=d_model,
        d_vocab=d_vocab,
        max_positions=max_positions,
        positions_fixed=positions_fixed,
        dtype="none" if parameter is None else str(parameter.dtype).removeprefix("torch."),
        n_parameters=sum(p.numel() for p in module.parameters()),
        digest=digest_weights(module),
    )
