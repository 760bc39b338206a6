"""Every placement against its published equation (theory section 12), written out independently."""

import math

import pytest
import torch

from resharpen.models import Transformer, TransformerConfig
from resharpen.models.placements import PLACEMENTS

LAYERS = 5


def perturbed(cfg: TransformerConfig, seed: int = 0) -> Transformer:
    model = Transformer(cfg, seed=seed)
    generator = torch.Generator().manual_seed(seed + 100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def equations(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    cfg = model.cfg

    def norm(module, x):
        if cfg.norm_placement == "ngpt":
            x = x - x.mean(-1, keepdim=True) if cfg.normalization_type == "LN" else x
            return x / x.norm(dim=-1, keepdim=True)
        if cfg.normalization_type == "LN":
            return torch.nn.functional.layer_norm(x, (cfg.d_model,), module.w, module.b, cfg.eps)
        return torch.nn.functional.rms_norm(x, (cfg.d_model,), module.w, cfg.eps)

    def attention(block, x):
        a, total = block.attn, torch.zeros_like(x)
        for h in range(cfg.n_heads):
            q, k, v = x @ a.W_Q[h], x @ a.W_K[h], x @ a.W_V[h]
            scale = cfg.head_width**-0.5
            if cfg.norm_placement == "ngpt":
                q = q / q.norm(dim=-1, keepdim=True) * a.s_qk[h]
                k = k / k.norm(dim=-1, keepdim=True) * a.s_qk[h]
                scale = cfg.head_width**0.5
            elif cfg.qk_norm != "none":
                q = q / q.norm(dim=-1, keepdim=True)
                k = k / k.norm(dim=-1, keepdim=True)
                scale = a.qk_gain[h] if cfg.qk_norm == "learned" else cfg.qk_gain
            scores = q @ k.transpose(1, 2) * scale
            future = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
            total += scores.masked_fill(future, -torch.inf).softmax(-1) @ v @ a.W_O[h]
        return total

    def mlp(block, x):
        hidden = x @ block.mlp.W_in
        if cfg.norm_placement == "ngpt":
            hidden = hidden * block.mlp.s_u * math.sqrt(cfg.d_model)
        return torch.relu(hidden) @ block.mlp.W_out

    x = model.embed.W_E[tokens]
    if cfg.norm_placement == "sandwich":
        x = norm(model.ln_embed, x)
    for number, block in enumerate(model.blocks, start=1):
        for sublayer, before, after, stream, step in (
            (attention, block.ln1, block.ln1_post, block.ln1_resid, block.step1),
            (mlp, block.ln2, block.ln2_post, block.ln2_resid, block.step2),
        ):
            match cfg.norm_placement:
                case "none":
                    x = x + sublayer(block, x)
                case "pre":
                    x = x + sublayer(block, norm(before, x))
                case "post":
                    x = norm(stream, x + sublayer(block, x))
                case "res_post":
                    x = x + norm(after, sublayer(block, x))
                case "attn_out":
                    out = sublayer(block, x)
                    x = x + (norm(after, out) if sublayer is attention else out)
                case "peri" | "sandwich":
                    x = x + norm(after, sublayer(block, norm(before, x)))
                case "mix":  # a quarter of five blocks, rounded up: the first two are post-norm
                    if number <= 2:
                        x = norm(stream, x + sublayer(block, x))
                    else:
                        x = x + sublayer(block, norm(before, x))
                case "ln_scaling":
                    x = x + sublayer(block, norm(before, x) / math.sqrt(number))
                case "deepnorm":
                    x = norm(stream, (2 * LAYERS) ** 0.25 * x + sublayer(block, x))
                case "ngpt":
                    target = norm(None, sublayer(block, x))
                    x = norm(None, x + step.abs() * (target - x))
                case other:
                    raise AssertionError(f"no equation for {other}")
    if model.ln_final is not None:
        x = norm(model.ln_final, x)
    logits = x @ model.unembed.W_U
    return logits * model.unembed.s_z if cfg.norm_placement == "ngpt" else logits


def config(placement: str, **changes: object) -> TransformerConfig:
    values: dict = {
        "d_vocab": 7,
        "n_layers": LAYERS,
        "n_heads": 2,
        "d_model": 8,
        "attn_only": False,
        "act_fn": "relu",
        "norm_placement": placement,
        "eps": 1e-12 if placement == "ngpt" else 1e-5,
    }
    return TransformerConfig(**{**values, **changes})


TOKENS = torch.tensor([[1, 5, 0, 2, 2, 6], [3, 3, 4, 1, 0, 5]])


@pytest.mark.parametrize("normalization_type", ["LN", "RMS"])
@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_placements_follow_their_equations(placement, final_norm, normalization_type) -> None:
    cfg = config(placement, final_norm=final_norm, normalization_type=normalization_type)
    model = perturbed(cfg).double()
    torch.testing.assert_close(model(TOKENS), equations(model, TOKENS), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("qk_norm", ["fixed", "learned"])
@pytest.mark.parametrize("placement", sorted(set(PLACEMENTS) - {"ngpt"}))
def test_qk_norm_combines_with_every_placement(placement, qk_norm) -> None:
    model = perturbed(config(placement, qk_norm=qk_norm, qk_gain=3.0)).double()
    torch.testing.assert_close(model(TOKENS), equations(model, TOKENS), atol=1e-9, rtol=1e-9)


def test_deepnorm_starts_smaller_and_amplifies_the_stream() -> None:
    plain = Transformer(config("post"), seed=3)
    deep = Transformer(config("deepnorm"), seed=3)
    beta = (8 * LAYERS) ** -0.25
    for layer in range(LAYERS):
        for name in ("attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out"):
            expected = beta * plain.get_parameter(f"blocks.{layer}.{name}")
            torch.testing.assert_close(deep.get_parameter(f"blocks.{layer}.{name}"), expected)
        for name in ("attn.W_Q", "attn.W_K"):
            assert torch.equal(
                deep.get_parameter(f"blocks.{layer}.{name}"),
                plain.get_parameter(f"blocks.{layer}.{name}"),
            )
    assert beta < 1 < deep.blocks[0].places.skip_gain == pytest.approx((2 * LAYERS) ** 0.25)


def test_mix_is_post_norm_in_the_first_quarter() -> None:
    for n_layers, early in ((1, 1), (4, 1), (5, 2), (8, 2), (12, 3)):
        places = [PLACEMENTS["mix"].at(layer, n_layers) for layer in range(n_layers)]
        assert [place.stream for place in places] == [layer < early for layer in range(n_layers)]
        assert [place.before for place in places] == [layer >= early for layer in range(n_layers)]


def test_ngpt_streams_and_weights_lie_on_the_sphere() -> None:
    model = Transformer(config("ngpt"), seed=1)
    _, cache = model.run_with_cache(TOKENS)
    for layer in range(LAYERS):
        length = cache[f"blocks.{layer}.hook_resid_post"].norm(dim=-1)
        torch.testing.assert_close(length, torch.ones_like(length), atol=1e-4, rtol=0)
    for weight in (model.embed.W_E.norm(dim=-1), model.unembed.W_U.norm(dim=0)):
        torch.testing.assert_close(weight, torch.ones_like(weight))
    for weight in (model.W_Q.norm(dim=-2), model.W_O.norm(dim=-1)):
        torch.testing.assert_close(weight, torch.ones_like(weight))


@pytest.mark.parametrize("change", [{"qk_norm": "fixed"}, {"sigma_reparam": True}])
def test_ngpt_refuses_a_second_normalisation(change) -> None:
    with pytest.raises(ValueError, match="normalises queries, keys and weights itself"):
        config("ngpt", **change)
