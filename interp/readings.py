"""What is read at each site: one number a query row, from the last queries only.

A reader is handed an activation while the model runs and returns a small :class:`Reading`; the
activation itself, and with it the ``query x key`` pattern, is let go.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..models.facts import Facts
from ..models.sites import Site, WeightRule
from .measures import Measure, key_count
from .verify import causal_mask, visible_keys

Reader = Callable[[Tensor], "Reading"]

ARRAY_OF_KIND: dict[str, str] = {
    "pattern": "weights",
    "scores": "scores",
    "stream": "stream",
    "contribution": "contribution",
    "norm_scale": "scale",
}
"""The array that a measure reads at each kind of site."""

_VECTORS = "outputs"


@dataclass(frozen=True, repr=False)
class Reading(Facts):
    """What one site gave in one forward pass.

    Attributes:
        values: By quantity, ``[batch, head, query]`` for attention, ``[batch, query]`` otherwise.
        n_key: Visible keys of each row ``[batch, head, query]`` for attention, else ``None``.
        vectors: By quantity that is a variance over sequences, the vectors ``[batch, d_model]`` of
            the last query.
    """

    values: Mapping[str, Tensor] = field(default_factory=dict)
    n_key: Int[Tensor, "batch head query"] | None = None
    vectors: Mapping[str, Tensor] = field(default_factory=dict)


def reads_site(measure: Measure, site: Site) -> bool:
    """Whether a measure takes its main array from this site."""
    if _VECTORS in measure.reads:
        return site.kind == "contribution" and site.name.endswith("hook_attn_out")
    if site.kind == "pattern" and "unnormalised" in measure.reads:
        return True
    return ARRAY_OF_KIND.get(site.kind) in measure.reads


def site_readers(
    sites: Iterable[Site],
    measures: Sequence[Measure],
    *,
    n_queries: int = 1,
    causal: bool = True,
    relevant: Bool[Tensor, "batch #query key"] | None = None,
    scale_alone: Mapping[str, Float[Tensor, "batch query 1"]] | None = None,
    rule: WeightRule | None = None,
) -> dict[str, Reader]:
    """Readers for :func:`~resharpen.interp.capturing.capture`, by hook name.

    Visible keys come from the scores of the same layer where they are among the sites (a masked
    score is ``-inf`` or the lowest number of its dtype), else from causality.

    Args:
        sites: What to read; a pattern sees the scores of its layer only when both are given.
        measures: What to compute. A measure is skipped at a site that does not have all its arrays.
        n_queries: Number of last query rows to reduce.
        causal: Whether a query sees no later keys; used where the scores do not tell.
        relevant: Keys that each of the last queries needs.
        scale_alone: By ``hook_scale`` name, the scale of the last query tokens alone.
        rule: What the rows of a pattern are; rows of softmax when not given. Weights that need not
            sum to one are divided by their sum, which ``total_mass`` tells; of signed weights
            ``total_mass`` is all that is read.

    Raises:
        ValueError: If ``n_queries`` is less than 1; or, when a reader runs, if there are fewer
            positions than that.
    """
    if n_queries < 1:
        raise ValueError(f"n_queries must be 1 or more; got {n_queries}")
    rows_are = WeightRule() if rule is None else rule
    visible: dict[int | None, Tensor] = {}
    places = list(sites)
    layers_with_pattern = {
        site.layer
        for site in places
        if site.kind == "pattern" and any(reads_site(measure, site) for measure in measures)
    }

    def attention(site: Site, wanted: list[Measure]) -> Reader:
        def read(activation: Tensor) -> Reading:
            rows = _last(activation, n_queries, axis=-2)
            if site.kind == "scores":
                mask = visible_keys(rows)
                if site.layer in layers_with_pattern:
                    visible[site.layer] = mask
            else:
                mask = visible.pop(site.layer, None)
                if mask is None:
                    mask = _unmasked(rows, causal)
            arrays = {"visible": mask}
            if site.kind == "scores":
                arrays["scores"] = rows
            else:
                arrays |= _weight_arrays(rows, rows_are)
            if relevant is not None:
                arrays["relevant"] = relevant.to(rows.device)[:, None]
            return Reading(_measured(wanted, arrays), key_count(mask))

        return read

    def vector(site: Site, wanted: list[Measure]) -> Reader:
        def read(activation: Tensor) -> Reading:
            rows = _last(activation, n_queries, axis=1).clone()  # a view would keep every position
            arrays = {ARRAY_OF_KIND[site.kind]: rows}
            if scale_alone is not None and site.name in scale_alone:
                arrays["scale_alone"] = scale_alone[site.name].to(rows.device)
            vectors = {measure.name: rows[:, -1] for measure in wanted if _VECTORS in measure.reads}
            return Reading(_measured(wanted, arrays), vectors=vectors)

        return read

    readers: dict[str, Reader] = {}
    for site in places:
        wanted = [measure for measure in measures if reads_site(measure, site)]
        is_attention = site.kind in ("scores", "pattern")
        gives_mask = site.kind == "scores" and site.layer in layers_with_pattern
        if wanted or gives_mask:
            readers[site.name] = (attention if is_attention else vector)(site, wanted)
    return readers


def _weight_arrays(rows: Tensor, rule: WeightRule) -> dict[str, Tensor]:
    if rule.row_sum == 1.0 and not rule.signed:
        return {"weights": rows}
    if rule.signed:
        return {"unnormalised": rows}
    return {"weights": rows / rows.sum(-1, keepdim=True), "unnormalised": rows}


def _measured(wanted: list[Measure], arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        measure.name: measure(arrays)
        for measure in wanted
        if all(array in arrays for array in measure.reads)
    }


def _last(activation: Tensor, n_queries: int, axis: int) -> Tensor:
    """The last rows along the query axis, a view."""
    length = activation.shape[axis]
    if length < n_queries:
        raise ValueError(f"{n_queries} query rows were asked for, but the input has {length}")
    return activation.narrow(axis, length - n_queries, n_queries)


def _unmasked(rows: Tensor, causal: bool) -> Tensor:
    if not causal:
        return torch.ones_like(rows, dtype=torch.bool)
    return causal_mask(rows.shape[-2], rows.shape[-1], rows.device).expand(rows.shape)
