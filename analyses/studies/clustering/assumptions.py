"""How far a model is from what the theory of clustering assumes, one number an assumption.

==========================  ===================================================  ================
quantity                    what it is                                           assumed
==========================  ===================================================  ================
``identity_cosine_qk``      ``tr(M) / (sqrt(d_model) |M|_F)``, ``M = W_Q W_K^T``  1
``identity_cosine_ov``      the same of ``W_V W_O``                              1
``layer_distance_qk``       ``|M' - M|_F / sqrt(|M'|_F**2 + |M|_F**2)`` of two   0
                            consecutive blocks (1 if they have nothing to do
                            with each other)
``layer_distance_ov``       the same of ``W_V W_O``                              0
``score_slope``             slope of the scores against the cosines of their     beta, >= 0
                            tokens, over pairs of different positions
``visible_share``           share of the pairs that see each other               1
==========================  ===================================================  ================

Orthogonal start: ``mean_cosine`` and ``mean_square_cosine`` at the first boundary, both 0. No MLP:
``mlp_turn`` beside ``attention_turn``. Source: theory 11.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from ....interp.capturing import capture
from ....interp.drawing import Sample, draw
from ....interp.measures import directions
from ....interp.reduce import Moments
from ....interp.tables import table
from ....models.transformer import Transformer


def identity_cosine(matrix: Tensor) -> Tensor:
    """Cosine between a square matrix and the identity, in the Frobenius inner product, -1 to 1."""
    width = matrix.shape[-1]
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return trace / (width**0.5 * torch.linalg.matrix_norm(matrix))


def layer_distance(matrix: Tensor, following: Tensor) -> Tensor:
    """How different two matrices are: 0 if equal, 1 if orthogonal, sqrt(2) if opposite."""
    sizes = torch.linalg.matrix_norm(matrix).square() + torch.linalg.matrix_norm(following).square()
    return torch.linalg.matrix_norm(following - matrix) / sizes.sqrt()


def assumption_rows(
    model: Transformer,
    sample: Sample,
    length: int,
    *,
    n_sequences: int,
    seed: int = 0,
    labels: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The numbers above, block by block (mean over heads), as rows of the tidy table.

    Args:
        model: One of our own models.
        sample: What it is fed.
        length: Length to ask of the task, at least 2.
        n_sequences: Sequences, in one batch.
        seed: Seed of what is drawn.
        labels: Columns ``study``, ``checkpoint``, ``task`` and ``seed``.
    """
    tokens = draw(sample, seed, length, n_sequences).tokens
    causal = model.cfg.attention_dir == "causal"
    n_pos, n_layers = tokens.shape[1], model.cfg.n_layers
    visible = torch.ones(n_pos, n_pos, dtype=torch.bool)
    visible = visible.tril() if causal else visible
    share = float(visible.double().mean())
    pairs = visible & ~torch.eye(n_pos, dtype=torch.bool)
    slopes: dict[int, Tensor] = {}
    unit: list[Tensor] = []

    def look(stream: Tensor) -> None:
        unit[:] = [directions(stream)]

    def fit(layer: int, scores: Tensor) -> None:
        cosines = (unit[0] @ unit[0].mT)[:, pairs]
        centred = cosines - cosines.mean(1, keepdim=True)
        found = scores[:, :, pairs].mean(1)
        slopes[layer] = (centred * found).sum(1) / centred.square().sum(1)

    readers: dict[str, Any] = {}
    for layer in range(n_layers):
        readers[f"blocks.{layer}.hook_resid_pre"] = look
        readers[f"blocks.{layer}.attn.hook_attn_scores"] = lambda x, layer=layer: fit(layer, x)
    capture(model, tokens, readers)
    products = {
        "qk": (model.W_Q @ model.W_K.mT).detach().double(),
        "ov": (model.W_V @ model.W_O).detach().double(),
    }
    rows = []
    for layer in range(n_layers):
        found = {"score_slope": slopes[layer], "visible_share": torch.tensor([share])}
        for name, matrices in products.items():
            found[f"identity_cosine_{name}"] = identity_cosine(matrices[layer])
            if layer:
                between = layer_distance(matrices[layer - 1], matrices[layer])
                found[f"layer_distance_{name}"] = between
        place = {
            **(labels or {}),
            "length": length,
            "n_key": n_pos,
            "layer": layer,
            "site": f"blocks.{layer}.attn",
            "unit": "1",
        }
        rows += [
            {**place, "quantity": name, **Moments().update(values).result().cells()}
            for name, values in found.items()
        ]
    return table(rows)
