import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from resharpen.models import Transformer, TransformerConfig
from resharpen.models.attention import is_observed
from resharpen.models.config import NormPlacement
from resharpen.models.placements import PLACEMENTS
from resharpen.models.positions import alibi_bias, apply_rotary


@st.composite
def configs(draw: st.DrawFn, **fixed: object) -> TransformerConfig:
    """Anything the configuration allows, small."""
    n_heads = draw(st.integers(1, 3))
    values: dict = {
        "d_vocab": draw(st.integers(2, 9)),
        "n_layers": draw(st.integers(1, 3)),
        "n_heads": n_heads,
        "d_model": draw(st.integers(2, 5)) * n_heads,
        "d_head": draw(st.sampled_from([2, 4, 6])),
        "n_ctx": 12,
        "attn_only": draw(st.booleans()),
        "act_fn": draw(st.sampled_from(["relu", "gelu", "gelu_new", "silu"])),
        "normalization_type": draw(st.sampled_from(["LN", "LNPre", "RMS", "RMSPre"])),
        "norm_placement": draw(st.sampled_from(sorted(PLACEMENTS))),
        "final_norm": draw(st.booleans()),
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
        "positional_embedding_type": draw(st.sampled_from(["none", "standard", "rotary", "alibi"])),
        "attention_dir": draw(st.sampled_from(["causal", "bidirectional"])),
        "biases": draw(st.booleans()),
        "tied_unembed": draw(st.booleans()),
        "init_range": 0.7,
    }
    return TransformerConfig(**{**values, **fixed})


def perturbed(cfg: TransformerConfig, seed: int = 0) -> Transformer:
    """A model whose every parameter differs from its initial value (gains of one hide mistakes)."""
    model = Transformer(cfg, seed=seed)
    generator = torch.Generator().manual_seed(seed + 100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def tokens_for(cfg: TransformerConfig, batch: int = 2, pos: int = 7) -> torch.Tensor:
    return torch.randint(cfg.d_vocab, (batch, pos), generator=torch.Generator().manual_seed(1))


@given(configs(), st.sampled_from(["hook_attn_scores", "hook_pattern"]))
def test_listening_to_attention_leaves_the_logits(cfg: TransformerConfig, hook: str) -> None:
    model, tokens = perturbed(cfg), tokens_for(cfg)
    fired = []
    fused = model(tokens)
    names = [f"blocks.{layer}.attn.{hook}" for layer in range(cfg.n_layers)]
    explicit = model.run_with_hooks(
        tokens, fwd_hooks=[(name, lambda x, hook: fired.append(hook.name)) for name in names]
    )
    assert fired == names
    torch.testing.assert_close(fused, explicit, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("listen", [False, True])
def test_attention_is_fused_exactly_when_nobody_listens(
    listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: object, **kwargs: object) -> torch.Tensor:
        calls.append(1)
        return kernel(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    model = Transformer(TransformerConfig(d_vocab=5, n_layers=3, d_model=8))
    hooks = [("blocks.1.attn.hook_pattern", lambda x, hook: None)] if listen else []
    model.run_with_hooks(torch.tensor([[1, 2, 3]]), fwd_hooks=hooks)
    assert len(calls) == (2 if listen else 3)
    assert not is_observed(model.blocks[1].attn.hook_pattern)


@pytest.mark.parametrize("normalization_type", ["LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@pytest.mark.parametrize("mode", ["train", "no_grad", "explicit"])
@pytest.mark.parametrize("final_norm", [False, True])
def test_every_norm_hook_is_live(
    placement: NormPlacement, normalization_type: str, mode: str, final_norm: bool
) -> None:
    cfg = TransformerConfig(
        d_vocab=7,
        n_layers=2,
        d_model=8,
        attn_only=False,
        norm_placement=placement,
        normalization_type=normalization_type,  # type: ignore[arg-type]
        # With a final norm after it, doubling a scale of the last block would rightly do nothing.
        final_norm=final_norm,
    )
    model, tokens = perturbed(cfg), tokens_for(cfg)
    norms = [name for name in model.hook_dict if name.endswith(("hook_scale", "hook_normalized"))]
    scheme = PLACEMENTS[placement]
    places = [scheme.at(layer, 2) for layer in range(2)]
    per_sublayer = sum(
        (1 + place.mlp) * (place.before + place.after + place.stream) for place in places
    )
    assert len(norms) == 2 * (final_norm + scheme.embedding + per_sublayer)
    if final_norm:
        norms = [name for name in norms if name.startswith("ln_final")]
    model.train(mode == "train")
    extra = [("blocks.0.attn.hook_pattern", lambda x, hook: x)] if mode == "explicit" else []
    with torch.set_grad_enabled(mode == "train"):
        before = model(tokens)
        for name in norms:
            edit = [(name, lambda x, hook: 2.0 * x), *extra]
            after = model.run_with_hooks(tokens, fwd_hooks=edit)
            assert (after - before).abs().max() > 1e-3, name


@pytest.mark.parametrize("normalization_type", ["LN", "RMS"])
def test_norms_agree_with_torch(normalization_type: str) -> None:
    from resharpen.models.norms import Norm

    cfg = TransformerConfig(
        d_vocab=3,
        d_model=10,
        normalization_type=normalization_type,
        eps=0.03,  # type: ignore[arg-type]
    )
    norm = Norm(cfg)
    x = torch.randn(4, 5, 10) * 3 + 1
    with torch.no_grad():
        norm.w.copy_(torch.randn(10))  # type: ignore[union-attr]
        if normalization_type == "LN":
            norm.b.copy_(torch.randn(10))  # type: ignore[union-attr]
            expected = torch.nn.functional.layer_norm(x, (10,), norm.w, norm.b, 0.03)
        else:
            expected = torch.nn.functional.rms_norm(x, (10,), norm.w, 0.03)
    torch.testing.assert_close(norm(x), expected, atol=1e-5, rtol=1e-5)


def test_causal_models_do_not_look_ahead() -> None:
    model = perturbed(TransformerConfig(d_vocab=9, n_layers=2, d_model=8))
    tokens = tokens_for(model.cfg)
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 9
    torch.testing.assert_close(model(tokens)[:, :4], model(changed)[:, :4])
    assert (model(tokens)[:, 4:] - model(changed)[:, 4:]).abs().max() > 1e-3


def test_rotary_scores_depend_on_distance_alone() -> None:
    x = torch.randn(1, 1, 1, 8).expand(1, 30, 1, 8)
    y = torch.randn(1, 1, 1, 8).expand(1, 30, 1, 8)
    scores = (apply_rotary(x, 10000.0)[0, :, 0] @ apply_rotary(y, 10000.0)[0, :, 0].T).double()
    for distance in (0, 1, 5):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)
    assert (scores.diagonal(0)[0] - scores.diagonal(-5)[0]).abs() > 1e-3


def test_alibi_bias_is_linear_in_distance_with_geometric_slopes() -> None:
    bias = alibi_bias(8, 5, torch.zeros(1))
    assert bias.shape == (8, 5, 5)
    torch.testing.assert_close(-bias[:, 4, 3], 2.0 ** -torch.arange(1.0, 9))
    torch.testing.assert_close(bias[:, 4, 0], 4 * bias[:, 4, 3])


def test_loss_is_the_cross_entropy_of_the_next_token() -> None:
    model = perturbed(TransformerConfig(d_vocab=9, d_model=8))
    tokens = tokens_for(model.cfg)
    logits, loss = model(tokens, return_type="both")
    picked = logits[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:, None])
    torch.testing.assert_close(loss, -picked.mean())
    assert model(tokens, return_type=None) is None


def test_same_seed_same_weights() -> None:
    cfg = TransformerConfig(d_vocab=5, d_model=8)
    first, second, other = (Transformer(cfg, seed=seed).W_E for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (torch.zeros(1, 3), TypeError, "tokens must be an integer tensor"),
        ([1, 2], TypeError, "got list"),
        (torch.zeros(1, 0, dtype=torch.long), ValueError, "pos >= 1"),
        (torch.zeros(1, 13, dtype=torch.long), ValueError, "this model learned 12"),
        (torch.tensor([[0, 5]]), ValueError, r"token ids must lie in 0\.\.4"),
    ],
)
def test_bad_tokens_get_one_clear_sentence(
    tokens: object, error: type[Exception], message: str
) -> None:
    cfg = TransformerConfig(d_vocab=5, d_model=8, n_ctx=12, positional_embedding_type="standard")
    with pytest.raises(error, match=message):
        Transformer(cfg)(tokens)


def test_an_unknown_name_filter_is_refused() -> None:
    model = Transformer(TransformerConfig(d_vocab=5, d_model=8))
    with pytest.raises(ValueError, match=r"no hook point 'blocks.0.attn.hook_patern'; the closest"):
        model.run_with_cache(torch.tensor([[1]]), names_filter="blocks.0.attn.hook_patern")
