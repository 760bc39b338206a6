"""Dropout of a training step: drawn outside the model, from the seed and the step alone.

Torch's own generator would have to be saved to resume a run, and the seeds of a stack would share
its one stream. Here each seed draws as it would on its own, and nothing has to be carried over.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..config import TransformerConfig
from ..tasks import seeded_generator

_STREAM = 1
"""Third part of the key of the random stream; the batches' key has two."""


def attention_dropout(
    cfg: TransformerConfig, seed: int, step: int, n_sequences: int, length: int
) -> Float[Tensor, "layer batch head query key"]:
    """Draw the factors on the attention weights: 0, or ``1 / (1 - p)`` with probability ``1 - p``.

    Args:
        cfg: The model; ``p`` is its ``attn_dropout``.
        seed: Seed of the run.
        step: Number of steps done.
        n_sequences: Sequences in the batch.
        length: Tokens in a sequence.
    """
    shape = (cfg.n_layers, n_sequences, cfg.n_heads, length, length)
    draws = seeded_generator(seed, step, _STREAM).random(shape, dtype=np.float32)
    share = 1 - cfg.attn_dropout
    return torch.from_numpy(draws < share) * (1 / share)
