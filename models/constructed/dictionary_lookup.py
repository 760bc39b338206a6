"""A closed-form solution of dictionary lookup: a needle among keys that speak.

Theory sections 1.1 (needle retrieval) and 10. Every query scores ``m`` on the pairs of its own key
and 0 on everything else, itself included. With ``n`` keys the needle of the last query, a query
token, has the weight ``a`` and every other key ``a0``: under softmax with the inverse temperature
``β`` of the normalizer

    a = e^(βm) / Z,    a0 = 1 / Z,    Z = e^(βm) + n - 1

(for other normalizers, their weights of one score ``m`` beside ``n - 1`` zeros). The value of a
pair is the centred one-hot vector of its value times ``p``; a query has none. With ``N_v`` the
number of the other pairs of value ``v``, ``v*`` the answer, ``V`` the number of values, ``D`` the
width and ``g`` the gain, the logits of the last query are

    l_v = p (a [v = v*] + a0 N_v - (a + (n - 2) a0) / V)          ``none``, ``pre``
    g l_v / sqrt(|l|^2 / D + eps)                                 ``res_post``, ``peri``
    g l_v / sqrt((b^2 + |l|^2) / D + eps)                         ``post``, or with final norm

Over the sequences of the task, ``E[l_v* - l_v] = p a`` and

    E |l|^2 = p^2 (1 - 1/V) (a^2 + (n - 2) a0^2),

so without a norm the answer stands out by ``a``, which falls once ``n`` exceeds ``e^(βm)``, and
after a norm by ``a / sqrt(a^2 + (n - 2) a0^2)``, which falls once ``n`` exceeds ``e^(2βm)``: the
two critical exponents of a needle, 1 and 1/2.
"""

import torch

from ..checkpoint import Checkpoint
from ..config import NormalizationType, NormalizerName, NormPlacement
from ..tasks import DictionaryLookup
from .assembling import assemble_needle, mirrored, needle_config, output_block, seen_norm


def construct_dictionary_lookup(
    keys: int = 16,
    values: int = 8,
    *,
    norm_placement: NormPlacement = "none",
    normalization_type: NormalizationType = "RMS",
    final_norm: bool = False,
    margin: float = 5.0,
    p: float = 10.0,
    residual: float = 1.0,
    gain: float = 1.0,
    eps: float = 1e-5,
    normalizer: NormalizerName = "softmax",
    inverse_temperature: float = 1.0,
    entmax_alpha: float = 1.5,
) -> Checkpoint:
    """Build a one-block, one-head, attention-only solution of dictionary lookup.

    ``d_model = 4 K + 3 V`` and ``d_head = max(K, V)``.

    Args:
        keys: Number ``K`` of keys, at least 2.
        values: Number ``V`` of values, at least 2.
        norm_placement: One of ``none``, ``pre``, ``post``, ``res_post``, ``peri``. With ``pre`` and
            ``peri`` the input norm is undone in the weights.
        normalization_type: Any type; the formulas are the same.
        final_norm: Add a norm before the unembedding (with ``none`` and ``pre`` only).
        margin: Score ``m > 0`` of the needle above the other keys, before the normalizer.
        p: Logit gap where the needle has all the weight, before any norm.
        residual: Norm ``b > 0`` of the embedding, which the logits do not see.
        gain: Gain of the norm that acts last (``LN`` and ``RMS`` types).
        eps: The norms' epsilon.
        normalizer: Any but ``differential`` and ``linear``.
        inverse_temperature: As in the configuration.
        entmax_alpha: As in the configuration.

    Raises:
        ValueError: If a value is out of range or the combination has no closed form.
    """
    task = DictionaryLookup(keys, values)
    n_content = 2 * keys + values
    config = needle_config(
        task,
        margin=margin,
        p=p,
        residual=residual,
        d_model=2 * n_content + values,
        d_head=max(keys, values),
        norm_placement=norm_placement,
        normalization_type=normalization_type,
        final_norm=final_norm,
        eps=eps,
        normalizer=normalizer,
        inverse_temperature=inverse_temperature,
        entmax_alpha=entmax_alpha,
    )
    unit = torch.eye(n_content, dtype=torch.float64)
    stored, asked, value = unit.split([keys, keys, values])
    # A pair is its key and its value, of norm 1 together; a query is the key it asks for.
    pairs = (stored[:, None] + value[None, :]).flatten(0, 1) / 2**0.5
    tokens = mirrored(torch.cat([pairs, asked]), values)
    out = output_block(config.d_model, values)
    seen = seen_norm(config, residual)
    read_stored, read_asked, read_value = (
        mirrored(part * factor, values).T / seen
        for part, factor in ((stored, 2**0.5), (asked, 1.0), (value, 2**0.5))
    )
    centring = torch.eye(values, dtype=torch.float64) - 1 / values

    def head(columns: torch.Tensor) -> torch.Tensor:
        missing = columns.new_zeros(config.d_model, config.head_width - columns.shape[1])
        return torch.cat([columns, missing], dim=1)[None]

    state = {
        "embed.W_E": residual * tokens,
        "unembed.W_U": out.T,
        "blocks.0.attn.W_Q": head((read_stored + read_asked) * margin / config.score_factor),
        "blocks.0.attn.W_K": head(read_stored),
        "blocks.0.attn.W_V": head(read_value),
        "blocks.0.attn.W_O": head((p * centring @ out).T).transpose(1, 2),
    }
    return assemble_needle(
        config, state, task=task, margin=margin, p=p, residual=residual, gain=gain
    )
