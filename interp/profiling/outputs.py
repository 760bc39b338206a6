"""Loss and accuracy of the model's output at the labelled positions."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_CHUNK = 2**24
"""Logits that are widened at a time."""


def score_output(
    logits: Float[Tensor, "batch pos d_vocab_out"], labels: Int[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch pos"], Float[Tensor, "batch pos"]]:
    """Cross-entropy in nats and whether the largest logit is the label's, a row each.

    NaN where the label is negative (not scored). Logits of the last position alone are scored
    against the last label. Half precision is widened first.

    Raises:
        ValueError: If a label is no output token of the model.
    """
    labels = labels.to(logits.device)
    loss = torch.full(labels.shape, torch.nan, device=logits.device, dtype=torch.float64)
    accuracy = loss.clone()
    if logits.shape[1] == 1:
        labels = torch.cat([torch.full_like(labels[:, :-1], -1), labels[:, -1:]], dim=1)
    highest, n_out = int(labels.max()), logits.shape[-1]
    if highest >= n_out:
        raise ValueError(
            f"the probe's labels go up to {highest}, but the model has {n_out} output tokens: "
            "probe and model do not fit"
        )
    rows, columns = (labels >= 0).nonzero(as_tuple=True)
    step = max(1, _CHUNK // n_out)
    for start in range(0, len(rows), step):
        row, column = rows[start : start + step], columns[start : start + step]
        wide = logits[row, 0 if logits.shape[1] == 1 else column].float()
        label = labels[row, column]
        found = torch.nn.functional.cross_entropy(wide, label, reduction="none")
        loss[row, column] = found.double()
        accuracy[row, column] = (wide.argmax(-1) == label).double()
    return loss, accuracy
