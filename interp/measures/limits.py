"""What a row of attention can select: distance, separability and slope (theory 6).

A row is one query with its visible keys, weights ``a`` that sum to one and values ``x`` (what
attention averages). ``I`` is the selection: the ``k`` keys of largest weight; of equal weights the
earlier key is taken first, and a row of fewer keys selects them all.

====================  ==============================================  ==============
quantity              formula                                         no visible key
====================  ==============================================  ==============
`selection_distance`  ``|sum_{i not in I} a_i x_i - sum_{i in I}``    NaN
                      ``a_i x_i|``
`separable_share`     share of ``I`` nearer to the output than any    NaN
                      key outside ``I``
`jacobian_norm`       largest eigenvalue of ``diag(a) - a a'``        NaN
`jacobian_entry`      largest absolute entry of it                    NaN
====================  ==============================================  ==============

The distance is defined as in Mudarisov, Burtsev, Petrova and State, arXiv 2508.17821
[second-hand]; their formula of the geometric separability is not established, so
:func:`separable_share` is this project's own reading of it. Masks, half precision and leading axes
are as in :mod:`.dispersion`.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .precision import mask_like, widen

_HALVINGS = 80
"""Bisection steps: float64 has 53 bits, and an eigenvalue may lie some powers of two below 1."""


def selected_keys(
    weights: Float[Tensor, "*row key"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
    k: int = 4,
) -> Bool[Tensor, "*row key"]:
    """Which keys are selected: the ``k`` visible ones of largest weight, of equal ones the earlier.

    Raises:
        ValueError: If ``k`` is less than 1.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k must be a whole number of keys, 1 or more; got {k!r}")
    wide = widen(weights)
    mask = mask_like(visible, wide, "visible")
    sizes = torch.where(mask, wide, -torch.inf)
    order = sizes.sort(dim=-1, descending=True, stable=True).indices
    chosen = torch.zeros_like(mask).scatter_(-1, order[..., :k], True)
    return chosen & mask


def selection_distance(
    weights: Float[Tensor, "*row key"],
    values: Float[Tensor, "*#row key d_value"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
    k: int = 4,
) -> Float[Tensor, "*row"]:
    """``|sum_{i not in I} a_i x_i - sum_{i in I} a_i x_i|``, l2; at most the longest ``|x_i|``.

    How far what is selected lies from all the rest, each with the weight it has: 0 where the rest
    balances the selection, the length of the output where nothing is left over.

    Raises:
        ValueError: If ``k`` is less than 1, or the values do not fit the weights.

    Source: Mudarisov et al., arXiv 2508.17821, the definition before Theorem 1 [second-hand]
    (theory 6).
    """
    wide, vectors, mask = _row(weights, values, visible)
    sign = torch.where(selected_keys(wide, mask, k), -1.0, 1.0)
    difference = torch.einsum("...k,...kd->...d", torch.where(mask, wide, 0.0) * sign, vectors)
    return torch.where(mask.any(-1), difference.norm(dim=-1), torch.nan)


def separable_share(
    weights: Float[Tensor, "*row key"],
    values: Float[Tensor, "*#row key d_value"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
    k: int = 4,
) -> Float[Tensor, "*row"]:
    """``#{i in I: |x_i - o| < r} / #I``, ``r = min_{j not in I} |x_j - o|``; a ratio in ``[0, 1]``.

    ``o = sum_i a_i x_i`` is the output, ``r`` the radius around it that no key outside the
    selection enters: the selected keys inside it can be told from all the others by nearness to the
    output alone. 1 where nothing is left over. A key outside that has the same vector as a selected
    one (a copy of its token) makes that one inseparable.

    The definition is **this project's operationalisation**: what arXiv 2508.17821 counts in its
    Theorem 2 (70 to 85 % for uniform spherical embeddings, as reported) is not established here,
    and its numbers need not be of this quantity.

    Raises:
        ValueError: If ``k`` is less than 1, or the values do not fit the weights.

    Source: defined here, after theory 6.
    """
    wide, vectors, mask = _row(weights, values, visible)
    output = torch.einsum("...k,...kd->...d", torch.where(mask, wide, 0.0), vectors)
    distance = (vectors - output[..., None, :]).norm(dim=-1)
    chosen = selected_keys(wide, mask, k)
    radius = torch.where(mask & ~chosen, distance, torch.inf).amin(-1, keepdim=True)
    inside = (chosen & (distance < radius)).sum(-1)
    share = inside.to(wide.dtype) / chosen.sum(-1).clamp(min=1)
    known = mask.any(-1) & torch.where(mask, distance, 0.0).isfinite().all(-1)
    return torch.where(known, share, torch.nan)


def jacobian_norm(
    weights: Float[Tensor, "*row key"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
    temperature: float = 1.0,
) -> Float[Tensor, "*row"]:
    """Spectral norm of the softmax's slope ``(diag(a) - a a') / T``; unit 1, ``[0, 1 / (2 T)]``.

    How far the weights move for a small move of the scores, in the worst direction. Without the
    matrix: the largest eigenvalue ``l`` solves ``sum_i a_i^2 / (a_i - l) = 1`` between the second
    largest and the largest weight, which bisection in float64 finds in O(n); where the two are
    equal it is that weight.

    Args:
        weights: ``a``, rows that sum to one.
        visible: Which keys count.
        temperature: ``T > 0`` of the scores that the slope is in; 1 for the scores as they enter
            the softmax.

    Raises:
        ValueError: If the temperature is not above 0.

    Source: rank-one update of a diagonal matrix; the bounds are theory 6.
    """
    wide, mask = _weights(weights, visible)
    exact = torch.where(mask, wide.double(), 0.0)
    padded = torch.nn.functional.pad(exact, (0, 1))
    top, second = padded.topk(2, dim=-1).values.unbind(-1)
    low, high = second.clone(), top.clone()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        gap = exact - middle[..., None]
        # A midpoint that rounds onto a weight is the answer: its side does not matter.
        above = torch.where(gap == 0.0, 0.0, exact.square() / gap).sum(-1) > 1.0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    found = (low + high) / (2 * _checked(temperature))
    return torch.where(_usable(exact, mask), found, torch.nan).to(wide.dtype)


def jacobian_entry(
    weights: Float[Tensor, "*row key"],
    visible: Bool[Tensor, "*#row #key"] | None = None,
    temperature: float = 1.0,
) -> Float[Tensor, "*row"]:
    """Largest ``|d a_i / d s_j|``: ``max_i a_i (1 - a_i) / T``; unit 1, ``[0, 1 / (4 T)]``.

    It stands on the diagonal, since ``1 - a_i`` is the sum of all other weights.

    Args, errors: as :func:`jacobian_norm`. Source: theory 6.
    """
    wide, mask = _weights(weights, visible)
    exact = torch.where(mask, wide, 0.0)
    found = (exact * (1.0 - exact)).amax(-1) / _checked(temperature)
    return torch.where(_usable(exact, mask), found, torch.nan)


def _weights(weights: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    wide = widen(weights)
    return wide, mask_like(visible, wide, "visible")


def _row(weights: Tensor, values: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, values and mask, widened to one dtype; hidden values are zero."""
    wide, mask = _weights(weights, visible)
    vectors = widen(values)
    kind = torch.promote_types(wide.dtype, vectors.dtype)
    fits = vectors.ndim >= 2 and vectors.shape[-2] == wide.shape[-1]
    try:
        vectors = vectors.to(kind).expand(*wide.shape, -1) if fits else None
    except RuntimeError:
        vectors = None
    if vectors is None:
        raise ValueError(
            f"values must be [*row, key, d_value] for weights of shape {tuple(wide.shape)}; got "
            f"{tuple(values.shape)}"
        )
    return wide.to(kind), torch.where(mask[..., None], vectors, 0.0), mask


def _usable(exact: Tensor, mask: Tensor) -> Tensor:
    return mask.any(-1) & exact.isfinite().all(-1)


def _checked(temperature: float) -> float:
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0; got {temperature}")
    return temperature
