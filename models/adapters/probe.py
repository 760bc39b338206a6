"""The few tokens on which an adapter finds out about its model."""

import torch
from torch import Tensor

from .description import Description


def probe_tokens(facts: Description, batch: int = 2, length: int = 11) -> Tensor:
    """A few random tokens, without special ones, to find things out with."""
    if facts.max_positions is not None:
        length = min(length, facts.max_positions)
    generator = torch.Generator().manual_seed(0)
    allowed = torch.tensor(
        [
            token
            for token in range(min(facts.d_vocab, 1000))
            if token not in (facts.pad_token, facts.bos_token)
        ]
    )
    return allowed[torch.randint(len(allowed), (batch, length), generator=generator)]
