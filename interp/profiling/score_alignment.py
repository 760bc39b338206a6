"""How far a layer's scores are those of theory: products of the tokens' directions.

With query and key matrices the identity, the score of two tokens is beta times their cosine. What
is measured is the correlation of the scores with the cosines of the stream, over pairs of different
tokens: 1 there, about 0 for matrices that have nothing to do with the identity. Rotary positions
and a norm's gains lower it as the matrices do.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ...models.observed import AttentionSeen
from ..measures.clustering import directions
from .places import Positions

MOST_TOKENS = 64
"""Tokens of a sequence whose pairs are looked at, evenly spaced."""


def score_cosine_correlation(
    seen: AttentionSeen,
    stream: Float[Tensor, "batch pos d_model"],
    positions: Positions,
    causal: bool,
) -> Float[Tensor, "batch"]:
    """Correlation of a layer's scores with the cosines of its stream, mean over heads, in [-1, 1].

    Over pairs of at most :data:`MOST_TOKENS` tokens of each sequence, of a query with the keys
    before it (with all others, if the model is not causal) in its own document, within the window
    or not. NaN where there are fewer than three pairs, or scores or cosines do not vary.

    Args:
        seen: What the adapter showed.
        stream: What entered the block.
        positions: Where each position stands.
        causal: Whether positions see no later ones (of packed documents the record has a mask that
            says so, and no flag).
    """
    heads = seen.query.shape[1]
    group = heads // seen.key.shape[1]
    found = []
    for sequence, mask in enumerate(positions.shown):
        at = mask.nonzero().squeeze(-1)
        if len(at) > MOST_TOKENS:
            at = at[torch.linspace(0, len(at) - 1, MOST_TOKENS, device=at.device).round().long()]
        document = positions.documents[sequence, at]
        query = seen.query[sequence, :, at.to(seen.query.device)].double()
        key = seen.key[sequence, :, at.to(seen.key.device)].double()
        scores = seen.scale * query @ key.repeat_interleave(group, 0).mT
        unit = directions(stream[sequence, at.to(stream.device)][None])[0].to(scores)
        pairs = (document[:, None] == document).tril(-1)
        pairs = (pairs if causal else pairs | pairs.mT).to(scores.device)
        found.append(_correlation(scores[:, pairs], (unit @ unit.mT)[pairs]).mean())
    return torch.stack(found)


def _correlation(values: Float[Tensor, "head pair"], other: Float[Tensor, "pair"]) -> Tensor:
    """Pearson's, one a head; NaN for fewer than three pairs or none that differ."""
    if values.shape[1] < 3:
        return values.new_full(values.shape[:1], torch.nan)
    values = values - values.mean(1, keepdim=True)
    other = other - other.mean()
    return values @ other / (values.square().sum(1) * other.square().sum()).sqrt()
