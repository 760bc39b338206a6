"""Rows of the table that an audit's clustering section reads, beyond those of the profile."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from ..interp.capturing import HookedModel
from ..interp.drawing import Sample
from ..interp.shared_weights import weight_cosines
from ..interp.stream_sweeping import STREAM_UNITS, list_boundaries, stream_rows
from ..interp.tables import concatenate, table

__all__ = ["measure_streams", "weight_rows"]

MOST_LENGTHS = 6
"""Lengths at which the streams of a model of ours are looked at, the longest among them."""

MOST_SEQUENCES = 64
"""Sequences that they are looked at on."""


def weight_rows(
    blocks: Iterable[nn.Module], n_layers: int, length: int, labels: Mapping[str, Any]
) -> pd.DataFrame:
    """How much successive blocks share their weights: ``weight_cosine`` of each with the next.

    Args:
        blocks: The blocks; one module for all layers if they share it.
        n_layers: Number of layers.
        length: What the columns ``length`` and ``n_key`` say.
        labels: Values of the label columns.
    """
    given = list(blocks)
    one_for_all = len(set(map(id, given))) == 1 and n_layers > 1
    cosines = [1.0] * (n_layers - 1) if one_for_all else weight_cosines(given)
    return table(
        {
            **labels,
            "length": length,
            "n_key": length,
            "layer": layer,
            "site": f"blocks.{layer}",
            "quantity": "weight_cosine",
            "unit": "1",
            "mean": cosine,
            "n_obs": 0 if cosine != cosine else 1,
            "min": cosine,
            "max": cosine,
            "status": "unavailable" if cosine != cosine else "ok",
        }
        for layer, cosine in enumerate(cosines)
    )


def measure_streams(
    model: HookedModel,
    sample: Sample,
    lengths: Iterable[int],
    *,
    n_sequences: int,
    seed: int,
    labels: Mapping[str, Any],
) -> pd.DataFrame | None:
    """The streams of a model with hook points, at a few of the lengths; `None` if it shows none.

    Args:
        model: The model.
        sample: What it is fed.
        lengths: Lengths to choose from; one token alone has no cosine.
        n_sequences: Sequences a length, at most `MOST_SEQUENCES`.
        seed: Seed of the sequences.
        labels: Values of the label columns.
    """
    useful = np.array(sorted(length for length in lengths if length > 1))
    try:
        list_boundaries(model)
    except ValueError:
        return None
    if not useful.size:
        return None
    wanted = np.geomspace(useful[0], useful[-1], min(MOST_LENGTHS, useful.size))
    chosen = sorted({int(useful[np.abs(useful - one).argmin()]) for one in wanted})
    rows = stream_rows(
        model,
        sample,
        chosen,
        n_sequences=min(n_sequences, MOST_SEQUENCES),
        seed=seed,
        labels=labels,
        # The norm at the last token is in the table already.
        quantities=[name for name in STREAM_UNITS if name != "residual_norm"],
        verify=False,
    )
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        return rows
    return concatenate([rows, weight_rows(blocks, len(blocks), chosen[-1], labels)])
