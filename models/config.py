"""The configuration of a model: TransformerLens's field names, frozen, checked on construction.

Imports neither torch nor transformer_lens, so that the command line can build its flags from it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .facts import Settings

SCHEMA_VERSION = 1
"""Version of the on-disk configuration; raised when a field changes its meaning."""

NormPlacement = Literal[
    "none",
    "pre",
    "post",
    "res_post",
    "peri",
    "attn_out",
    "sandwich",
    "mix",
    "ln_scaling",
    "deepnorm",
    "ngpt",
]
NormalizerName = Literal[
    "softmax",
    "temperature",
    "sqrt_log_n",
    "log_n",
    "ssmax",
    "ssmax_bias",
    "adaptive",
    "selective",
    "entmax",
    "asentmax",
    "softmax1",
    "sigmoid",
    "differential",
    "hardmax",
    "linear",
]
QKNorm = Literal["none", "fixed", "learned"]
NormalizationType = Literal["LN", "LNPre", "RMS", "RMSPre"]
PositionalEmbeddingType = Literal["none", "standard", "rotary", "alibi"]
AttentionDirection = Literal["causal", "bidirectional"]
Activation = Literal["relu", "gelu", "gelu_new", "silu"]


@dataclass(frozen=True, repr=False)
class TransformerConfig(Settings):
    """Everything that determines the function a `Transformer` computes.

    Field names and meanings are those of TransformerLens's `HookedTransformerConfig`, but for
    `norm_placement`, `final_norm`, `tied_unembed` and what decides how scores become weights
    (`normalizer` and the fields after it), which it has no words for.

    Attributes:
        d_vocab: Number of input tokens, a beginning-of-sequence token included.
        n_layers: Number of blocks.
        n_heads: Attention heads a block.
        d_model: Width of the residual stream.
        d_head: Width of one head; `None` means `d_model // n_heads`.
        d_mlp: Width of the MLP's hidden layer; `None` means `4 * d_model`. Unused when
            `attn_only`.
        d_vocab_out: Number of output tokens; `None` means `d_vocab`.
        n_ctx: Longest input. Binding only for `"standard"` positions, which are learned one by
            one; other models run past it.
        attn_only: Leave the MLPs out.
        act_fn: Activation of the MLPs.
        normalization_type: `"LN"` (LayerNorm), `"RMS"` (RMSNorm), or the same without learned
            gain and bias, `"LNPre"`, `"RMSPre"`.
        norm_placement: Where the norms of a block stand: see
            the table in `resharpen.models.placements`.
        final_norm: Whether a norm stands before the unembedding. In a one-block attention-only
            model "pre" with a final norm and "post" without one end in the *same* norm, so a
            comparison of the two must switch this off (theory section 1.1, Confound).
        eps: Added to the mean square inside every norm.
        positional_embedding_type: `"none"`, `"standard"` (learned, absolute), `"rotary"`, or
            `"alibi"`.
        rotary_base: Base of the rotary frequencies.
        attention_dir: `"causal"` or `"bidirectional"`.
        attn_scale: Scores are divided by it; `None` means `sqrt(d_head)`.
        biases: Whether the projections (attention, MLP, unembedding) have biases.
        tied_unembed: Whether the unembedding is the transpose of the embedding.
        init_range: Standard deviation of the initial weights; `None` means `d_model ** -0.5`.
        normalizer: How a row's scores become weights: see the table in
            `resharpen.models.normalizers`.
        inverse_temperature: What `normalizer="temperature"` multiplies the scores by.
        entmax_alpha: `α` of `"entmax"` and `"asentmax"`, in (1, 2]; 2 is sparsemax.
        qk_norm: Whether queries and keys are set to length one, head by head (QK-norm, Henry et
            al. 2020, arXiv 2010.04245), so that scores are `qk_gain` times a cosine and
            `attn_scale` has no effect: `"none"`, with a `"fixed"` gain, or with a gain `"learned"`
            for each head.
        qk_gain: That gain, or where it starts.
        sigma_reparam: Whether every attention and MLP weight is divided by its largest singular
            value and given a learned gain (σReparam, Zhai et al., arXiv 2303.06296).
        attn_dropout: Probability with which each attention weight is set to zero in training, the
            others being divided by `1 - attn_dropout`. Evaluation never drops.
    """

    d_vocab: int
    n_layers: int = 1
    n_heads: int = 1
    d_model: int = 64
    d_head: int | None = None
    d_mlp: int | None = None
    d_vocab_out: int | None = None
    n_ctx: int = 1024
    attn_only: bool = True
    act_fn: Activation = "gelu"
    normalization_type: NormalizationType = "RMS"
    norm_placement: NormPlacement = "pre"
    final_norm: bool = False
    eps: float = 1e-5
    positional_embedding_type: PositionalEmbeddingType = "none"
    rotary_base: float = 10000.0
    attention_dir: AttentionDirection = "causal"
    attn_scale: float | None = None
    biases: bool = False
    tied_unembed: bool = False
    init_range: float | None = None
    normalizer: NormalizerName = "softmax"
    inverse_temperature: float = 1.0
    entmax_alpha: float = 1.5
    qk_norm: QKNorm = "none"
    qk_gain: float = 10.0
    sigma_reparam: bool = False
    attn_dropout: float = 0.0

    def __post_init__(self) -> None:
        """Resolve the defaults that depend on other fields, then check every field."""
        _check_types(self)
        for name in ("d_vocab", "n_layers", "n_heads", "d_model", "n_ctx"):
            _check_positive(name, getattr(self, name))
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise ValueError(
                    f"d_model must be a multiple of n_heads when d_head is not given; got d_model="
                    f"{self.d_model}, n_heads={self.n_heads}: set d_head"
                )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.d_mlp is None and not self.attn_only:
            object.__setattr__(self, "d_mlp", 4 * self.d_model)
        if self.d_vocab_out is None:
            object.__setattr__(self, "d_vocab_out", self.d_vocab)
        if self.attn_scale is None:
            object.__setattr__(self, "attn_scale", float(self.head_width) ** 0.5)
        if self.init_range is None:
            object.__setattr__(self, "init_range", float(self.d_model) ** -0.5)
        for name in (
            "d_head",
            "d_vocab_out",
            "attn_scale",
            "init_range",
            "rotary_base",
            "inverse_temperature",
            "qk_gain",
        ):
            _check_positive(name, getattr(self, name))
        if not 1 < self.entmax_alpha <= 2:
            raise ValueError(
                f"entmax_alpha must be more than 1 (softmax) and at most 2; got {self.entmax_alpha}"
            )
        if not 0 <= self.attn_dropout < 1:
            raise ValueError(
                f"attn_dropout must be zero or more and less than 1; got {self.attn_dropout}"
            )
        self._check_combinations()
        if self.d_mlp is not None:
            _check_positive("d_mlp", self.d_mlp)
        if not 0 <= self.eps < float("inf"):
            raise ValueError(f"eps must be a finite number, zero or more; got {self.eps}")
        if self.positional_embedding_type == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions need an even d_head; got d_head={self.d_head}")
        if self.tied_unembed and self.output_size > self.d_vocab:
            raise ValueError(
                "a tied unembedding reads its columns off the embedding, so d_vocab_out may not "
                f"exceed d_vocab; got d_vocab_out={self.d_vocab_out}, d_vocab={self.d_vocab}"
            )

    def _check_combinations(self) -> None:
        """Refuse two remedies that act on the same thing."""
        if self.norm_placement == "ngpt" and (self.qk_norm != "none" or self.sigma_reparam):
            raise ValueError(
                "norm_placement='ngpt' normalises queries, keys and weights itself: leave "
                "qk_norm='none' and sigma_reparam=False"
            )
        if self.normalizer == "linear" and self.positional_embedding_type == "alibi":
            raise ValueError(
                "linear attention has no scores to add ALiBi's bias to: take 'none', 'standard' or "
                "'rotary' positions"
            )

    @property
    def head_width(self) -> int:
        """`d_head`, resolved."""
        assert self.d_head is not None
        return self.d_head

    @property
    def output_size(self) -> int:
        """`d_vocab_out`, resolved."""
        assert self.d_vocab_out is not None
        return self.d_vocab_out

    @property
    def score_factor(self) -> float:
        """`1 / attn_scale`: what the products of queries and keys are multiplied by."""
        assert self.attn_scale is not None
        return 1.0 / self.attn_scale

    @property
    def n_key_value_heads(self) -> int | None:
        """Always `None`: every head has its own keys and values (read by TransformerLens)."""
        return None

    @property
    def final_rms(self) -> bool:
        """Whether the final norm is an RMSNorm (read by TransformerLens's `ActivationCache`)."""
        return self.normalization_type in ("RMS", "RMSPre")

    @property
    def device(self) -> None:
        """Always `None`, torch's default device (read by `transformer_lens.patching`)."""
        return None

    @property
    def longest_input(self) -> int | None:
        """Longest input the model accepts, or `None` when positions do not limit it."""
        return self.n_ctx if self.positional_embedding_type == "standard" else None

    def to_dict(self) -> dict[str, Any]:
        """Return every field, resolved, as plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TransformerConfig":
        """Build a configuration from plain values, refusing what it does not know.

        Raises:
            ValueError: If a key is unknown, `d_vocab` is missing, or a value is out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(
                f"unknown configuration key {', '.join(map(repr, unknown))}; known keys are "
                f"{', '.join(known)}"
            )
        if "d_vocab" not in values:
            raise ValueError("the configuration must give 'd_vocab', the number of input tokens")
        return cls(**values)


_CHOICES: dict[str, tuple[str, ...]] = {
    "norm_placement": get_args(NormPlacement),
    "normalization_type": get_args(NormalizationType),
    "positional_embedding_type": get_args(PositionalEmbeddingType),
    "attention_dir": get_args(AttentionDirection),
    "act_fn": get_args(Activation),
    "normalizer": get_args(NormalizerName),
    "qk_norm": get_args(QKNorm),
}


def _check_types(config: TransformerConfig) -> None:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        choices = _CHOICES.get(field.name)
        if choices is not None:
            if value not in choices:
                raise ValueError(f"{field.name} must be one of {', '.join(choices)}; got {value!r}")
            continue
        allowed = {
            int: (int,),
            float: (int, float),
            bool: (bool,),
            int | None: (int, type(None)),
            float | None: (int, float, type(None)),
        }[field.type]  # type: ignore[index]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            wanted = getattr(field.type, "__name__", str(field.type))
            raise ValueError(f"{field.name} must be {wanted}; got {value!r}")


def _check_positive(name: str, value: float | None) -> None:
    if value is None or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number; got {value!r}")
