"""The inverse temperature of a row: what its scores are multiplied by before they become weights.

Each entry of :data:`TEMPERATURES` is a module that gives ``β`` for every query from the number
``n`` of keys that it sees and, where the remedy is aware of the token, from the attention's input
``x``. A row with a single key has weight one whatever ``β`` is.
"""

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from .config import TransformerConfig

ADAPTIVE_POLYNOMIAL = (-0.037, 0.481, -2.3, 4.917, -1.791)
"""Coefficients of the adaptive temperature, highest power first (theory section 2)."""

ADAPTIVE_THRESHOLD = 0.5
"""Entropy (nats) up to which the adaptive temperature leaves a row alone."""

SSMAX_INIT = 0.43
"""Initial ``s`` of SSMax: the value of the paper's figure 1 (theory section 3)."""

SELECTIVE_INIT = -4.5
"""Initial ``α`` of the position temperature: ``σ(α) = 0.011`` is where the authors' code starts."""


class Temperature(nn.Module):
    """``β [batch, head, query]``, or anything that broadcasts to it; see the subclasses."""

    def __init__(self, cfg: TransformerConfig) -> None:
        """Keep the configuration; subclasses add what they learn."""
        super().__init__()
        self.cfg = cfg

    def forward(
        self, x: Float[Tensor, "batch query d_model"], n_key: Int[Tensor, "query"]
    ) -> Float[Tensor, "#batch #head query"]:
        """Give ``β`` of each row."""
        raise NotImplementedError


class Fixed(Temperature):
    """``β = cfg.inverse_temperature``."""

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        return x.new_full((1, 1, len(n_key)), self.cfg.inverse_temperature)


class LogN(Temperature):
    """``β = log n`` (Chiang & Cholak 2022, arXiv 2202.12172)."""

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        return torch.log(n_key.to(x.dtype))[None, None]


class SqrtLogN(Temperature):
    """``β = (log n)^½``: keeps Gaussian scores at one side of their freezing (theory 0, 5)."""

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        return torch.log(n_key.to(x.dtype)).sqrt()[None, None]


class SSMax(Temperature):
    """``β = s log n`` with ``s`` learned for each head (Nakanishi, arXiv 2501.19399)."""

    def __init__(self, cfg: TransformerConfig) -> None:
        """Start ``s`` at 0.43."""
        super().__init__(cfg)
        self.s = nn.Parameter(torch.full((cfg.n_heads,), SSMAX_INIT))

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        return (self.s[:, None] * torch.log(n_key.to(x.dtype)))[None]


class SSMaxBias(SSMax):
    """``β = s log n + b`` with ``s`` and ``b`` learned for each head (theory section 3)."""

    def __init__(self, cfg: TransformerConfig) -> None:
        """Start ``b`` at zero."""
        super().__init__(cfg)
        self.b = nn.Parameter(torch.zeros(cfg.n_heads))

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        return super().forward(x, n_key) + self.b[:, None]


class Selective(Temperature):
    """``β = 1 + σ(α) log n + tanh(w·x)``: a position and a query temperature for each head.

    Zhang et al., arXiv 2411.12892, as formulated in theory section 9; the temperature of the
    values is left out.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        """Start close to softmax."""
        super().__init__(cfg)
        self.position = nn.Parameter(torch.full((cfg.n_heads,), SELECTIVE_INIT))
        self.W_token = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_model))

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        position = torch.sigmoid(self.position)[:, None] * torch.log(n_key.to(x.dtype))
        return 1 + position + torch.tanh(_per_head(x, self.W_token))


class ASEntmax(Temperature):
    """``β = 1 + softplus(w_b·x) (log n)^{2 tanh(w_g·x)}`` for each token and head.

    Vasylenko et al., arXiv 2506.16640, as coded (theory section 7), with the keys that the row sees
    for the position; ``n = 1`` counts as 2, where the power of ``log 1`` would not be defined.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        """Create the two projections."""
        super().__init__(cfg)
        self.W_factor = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_model))
        self.W_power = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_model))

    def forward(self, x: Tensor, n_key: Tensor) -> Tensor:
        """Give ``β`` of each row."""
        log_n = torch.log(n_key.clamp_min(2).to(x.dtype))
        power = 2 * torch.tanh(_per_head(x, self.W_power))
        return 1 + F.softplus(_per_head(x, self.W_factor)) * log_n**power


def _per_head(x: Tensor, weight: Tensor) -> Tensor:
    return einsum(x, weight, "batch query d_model, head d_model -> batch head query")


def adaptive_inverse_temperature(
    scores: Float[Tensor, "*row key"],
) -> Float[Tensor, "*row 1"]:
    """Inverse temperature of a row from the entropy of its own softmax.

    ``max(1, p(H))`` where ``H > 0.5`` nats, else 1, with the polynomial ``p`` of Veličković et al.
    (arXiv 2410.01104; theory section 2). It exceeds 1 only for ``H`` between 0.849 and 5.944 nats:
    a row uniform over more than 381 keys is left alone.

    Args:
        scores: Scores, ``-inf`` where masked.
    """
    weights = torch.softmax(scores, dim=-1)
    finite = scores.masked_fill(scores == -torch.inf, 0.0)
    mean = (weights * finite).sum(-1, keepdim=True)
    entropy = torch.logsumexp(scores, dim=-1, keepdim=True) - mean
    value = torch.zeros_like(entropy)
    for coefficient in ADAPTIVE_POLYNOMIAL:
        value = value * entropy + coefficient
    return torch.where(entropy > ADAPTIVE_THRESHOLD, value.clamp_min(1.0), 1.0)


TEMPERATURES: dict[str, type[Temperature]] = {
    "fixed": Fixed,
    "log_n": LogN,
    "sqrt_log_n": SqrtLogN,
    "ssmax": SSMax,
    "ssmax_bias": SSMaxBias,
    "selective": Selective,
    "asentmax": ASEntmax,
}
"""Inverse temperatures that do not depend on the scores, by name."""
