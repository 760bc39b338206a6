"""Where the noise of a gradient comes from: from the inputs drawn, or from the labels drawn.

One sequence ``x`` has exact next-token distributions ``t_j`` at its positions ``j = 1..n`` and
labels ``y_j`` drawn from them. The gradients of its two losses (cross entropy, mean over positions)

    g_exact   = 1/n Σ_j J_j^T (p_j - t_j)        p_j = softmax of the logits, J_j their Jacobian
    g_sampled = 1/n Σ_j J_j^T (p_j - e_{y_j}) = g_exact + ξ

differ by the label noise ``ξ``, of mean zero given what the model has seen. So the covariance of
one sequence's gradient splits (the law of total variance where the labels do not enter the input)

    tr Cov(g_sampled) = E|ξ|^2  +  tr Cov(g_exact)  +  2 tr Cov(ξ, g_exact)
                        label      input               cross

``cross`` is zero if labels are drawn apart from the inputs. Where a label is the next input token
(set complement, plain language modelling) it need not be: later positions have seen the label.

The noise scale of McCandlish et al. (arXiv 1812.06162), ``B = tr Cov(g) / |E g|^2``, is the batch
size, in sequences, from which on larger batches stop helping. At the logits of one position the
label noise is ``Σ_i t_i |e_i - t|^2 = 1 - Σ_i t_i^2``: ``1 - 1/L`` for ``L`` equally likely tokens,
at any weights (:mod:`.theory.label_noise`); what reaches the weights depends on the Jacobian.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..models.facts import Facts

_CHUNK = 64
"""Sequences whose gradients are held at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class GradientNoise(Facts):
    """The noise of one sequence's gradient at fixed weights, estimated without bias.

    ``ξ = g_sampled - g_exact``. Squares and traces are sums over all weights, single numbers in
    nats squared (weights have no unit).

    Attributes:
        label: ``E|ξ|^2``, the part that exact targets would remove; zero or more.
        input: ``tr Cov(g_exact)``, the part that is left with exact targets; zero or more.
        cross: ``2 tr Cov(ξ, g_exact)``, of either sign.
        squared_norm: ``|E g|^2``; the estimate is negative where noise drowns the gradient.
        logit_label: Label noise at the logits, ``|e_y - t|^2`` of each sequence and position,
            in ``[0, 2]``.
        n_sequences: Sequences it was estimated from.
    """

    label: float
    input: float
    cross: float
    squared_norm: float
    logit_label: Float64[Tensor, "batch pos"]
    n_sequences: int

    @property
    def sampled(self) -> float:
        """``tr Cov(g_sampled)`` of one sequence."""
        return self.label + self.input + self.cross

    @property
    def sampled_scale(self) -> float:
        """Noise scale ``B`` with sampled targets, in sequences; NaN where the norm is unknown."""
        return self.sampled / self.squared_norm if self.squared_norm > 0 else math.nan

    @property
    def exact_scale(self) -> float:
        """Noise scale ``B`` with exact targets, in sequences; NaN where the norm is unknown."""
        return self.input / self.squared_norm if self.squared_norm > 0 else math.nan

    @property
    def transmission(self) -> float:
        """Label noise at the weights for each unit at the logits of one position.

        ``n label / mean_j |e_{y_j} - t_j|^2``, the mean squared gain of ``J_j^T`` on label noise;
        NaN where every next token is certain.
        """
        at_logits = float(self.logit_label.mean())
        return self.logit_label.shape[1] * self.label / at_logits if at_logits > 0 else math.nan


def decompose_gradient(
    model: nn.Module,
    tokens: Int[Tensor, "batch pos"],
    targets: Float[Tensor, "batch pos d_vocab_out"],
    next_tokens: Int[Tensor, "batch pos"],
    *,
    chunk: int = _CHUNK,
) -> GradientNoise:
    """Split the noise of the gradient at the model's weights into label and input noise.

    The gradients of single sequences come from :func:`torch.func.vmap`, so every operation of the
    model needs a batching rule (of our models: ``block.attn.fused = False``). They are summed in
    float64; the result does not depend on ``chunk`` beyond rounding.

    Args:
        model: Maps ``[batch, pos]`` to logits ``[batch, pos, d_vocab_out]``; left as it is.
        tokens: Independent sequences, two or more.
        targets: Exact distributions, each row summing to one.
        next_tokens: One label a position, drawn from ``targets``.
        chunk: Sequences whose gradients are held at a time.

    Raises:
        ValueError: If there are fewer than two sequences, shapes do not fit, a target is no
            distribution or gives a label no mass, or ``chunk`` is less than 1.
    """
    _check(tokens, targets, next_tokens, chunk)
    weights = {
        name: value.detach() for name, value in model.named_parameters() if value.requires_grad
    }
    noise = torch.nn.functional.one_hot(next_tokens, targets.shape[-1]) - targets

    def loss(values: dict[str, Tensor], sequence: Tensor, target: Tensor) -> Tensor:
        log_p = functional_call(model, values, (sequence[None],))[0].log_softmax(-1)
        return -(target * log_p).sum(-1).mean()

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    size = sum(value.numel() for value in weights.values())
    exact_sum, label_sum = torch.zeros(2, size, dtype=torch.float64).unbind()
    exact_square = label_square = product = 0.0
    for start in range(0, len(tokens), chunk):
        part = slice(start, start + chunk)
        exact = _flat(gradients(weights, tokens[part], targets[part]))
        # The loss is linear in its target, so the gradient at e_y - t is the label noise itself.
        label = _flat(gradients(weights, tokens[part], noise[part]))
        exact_sum += exact.sum(0)
        label_sum += label.sum(0)
        exact_square += float(exact.square().sum())
        label_square += float(label.square().sum())
        product += float((exact * label).sum())
    count = len(tokens)
    input_noise = (exact_square - float(exact_sum.square().sum()) / count) / (count - 1)
    return GradientNoise(
        label=label_square / count,
        input=input_noise,
        cross=2 * (product - float(exact_sum @ label_sum) / count) / (count - 1),
        squared_norm=float((exact_sum / count).square().sum()) - input_noise / count,
        logit_label=noise.double().square().sum(-1),
        n_sequences=count,
    )


def _flat(gradients: dict[str, Tensor]) -> Float64[Tensor, "batch weight"]:
    return torch.cat([value.flatten(1) for value in gradients.values()], dim=1).double()


def _check(tokens: Tensor, targets: Tensor, next_tokens: Tensor, chunk: int) -> None:
    if tokens.ndim != 2 or len(tokens) < 2:
        raise ValueError(
            "the noise of a gradient needs tokens [batch, pos] of two sequences or more; got shape "
            f"{tuple(tokens.shape)}"
        )
    if targets.ndim != 3 or targets.shape[:2] != tokens.shape or next_tokens.shape != tokens.shape:
        raise ValueError(
            f"for tokens {tuple(tokens.shape)} targets must be [batch, pos, d_vocab_out] and "
            f"next_tokens [batch, pos]; got {tuple(targets.shape)} and {tuple(next_tokens.shape)}"
        )
    if not ((targets.sum(-1) - 1).abs() < 1e-3).all() or (targets < 0).any():
        raise ValueError(
            "every target must be a distribution over the next token: leave out positions that "
            "nothing may follow"
        )
    if (targets.gather(-1, next_tokens[..., None]) <= 0).any():
        raise ValueError("every label must be one that its target gives some probability")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}")
