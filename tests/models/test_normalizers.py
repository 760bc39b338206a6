"""Every normalizer against an independent implementation of its published formula."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from resharpen.models import Transformer, TransformerConfig
from resharpen.models.attention import Attention
from resharpen.models.config import NormalizerName
from resharpen.models.normalizers import NORMALIZERS

POSITIONS = 9
TOKENS = torch.randint(7, (3, POSITIONS), generator=torch.Generator().manual_seed(2))


def config(normalizer: str, **changes: object) -> TransformerConfig:
    values: dict = {
        "d_vocab": 7,
        "n_heads": 2,
        "d_model": 8,
        "norm_placement": "none",
        "normalizer": normalizer,
        "init_range": 1.0,
    }
    return TransformerConfig(**{**values, **changes})


def perturbed(cfg: TransformerConfig) -> Transformer:
    model = Transformer(cfg, seed=4)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.double()


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def entmax(scores: np.ndarray, alpha: float) -> np.ndarray:
    def weights(tau: float) -> np.ndarray:
        return np.maximum((alpha - 1) * scores - tau, 0) ** (1 / (alpha - 1))

    top = (alpha - 1) * scores.max()
    return weights(brentq(lambda tau: weights(tau).sum() - 1, top - 1 - 1e-9, top, xtol=1e-15))


def sigmoid(x: np.ndarray | float) -> np.ndarray | float:
    return 1 / (1 + np.exp(-x))


def expected_row(model: Transformer, x: np.ndarray, head: int, query: int) -> np.ndarray:
    """Weights of one row from the stream ``x [pos, d_model]``, written from the formulas."""
    cfg, attn = model.cfg, model.blocks[0].attn

    def weight(name: str) -> np.ndarray:
        return attn.get_parameter(name).detach().numpy()

    def scores_of(query_name: str, key_name: str) -> np.ndarray:
        q = x[query] @ weight(query_name)[head]
        return (x[: query + 1] @ weight(key_name)[head]) @ q / math.sqrt(cfg.head_width)

    n, s = query + 1, scores_of("W_Q", "W_K")
    log_n = math.log(n)
    match cfg.normalizer:
        case "softmax":
            return softmax(s)
        case "temperature":
            return softmax(cfg.inverse_temperature * s)
        case "sqrt_log_n":
            return softmax(math.sqrt(log_n) * s)
        case "log_n":
            return softmax(log_n * s)
        case "ssmax":
            powers = np.float64(n) ** (weight("temperature.s")[head] * s)
            return powers / powers.sum()
        case "ssmax_bias":
            return softmax(
                (weight("temperature.s")[head] * log_n + weight("temperature.b")[head]) * s
            )
        case "adaptive":
            p = softmax(s)
            entropy = -(p * np.log(p)).sum()
            beta = np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy)
            return softmax((max(beta, 1.0) if entropy > 0.5 else 1.0) * s)
        case "selective":
            position = 1 + sigmoid(weight("temperature.position")[head]) * log_n
            return softmax((position + np.tanh(weight("temperature.W_token")[head] @ x[query])) * s)
        case "entmax":
            return entmax(s, cfg.entmax_alpha)
        case "asentmax":
            b = np.log1p(np.exp(weight("temperature.W_factor")[head] @ x[query]))
            g = 2 * np.tanh(weight("temperature.W_power")[head] @ x[query])
            return entmax((1 + b * math.log(max(n, 2)) ** g) * s, cfg.entmax_alpha)
        case "softmax1":
            return np.exp(s) / (1 + np.exp(s).sum())
        case "sigmoid":
            return sigmoid(s - log_n)
        case "differential":
            lam = (
                math.exp(weight("lambda_q1") @ weight("lambda_k1"))
                - math.exp(weight("lambda_q2") @ weight("lambda_k2"))
                + 0.8
                - 0.6 * math.exp(-0.3 * 0)
            )
            return softmax(s) - lam * softmax(scores_of("W_Q2", "W_K2"))
        case "hardmax":
            return (s == s.max()) / (s == s.max()).sum()
        case "linear":

            def features(u: np.ndarray) -> np.ndarray:
                u = u / cfg.head_width**0.25
                return np.where(u > 0, u + 1, np.exp(np.minimum(u, 0)))

            kernel = features(x[:n] @ weight("W_K")[head]) @ features(
                x[query] @ weight("W_Q")[head]
            )
            return kernel / kernel.sum()
        case other:
            raise AssertionError(f"no formula for {other}")


EVERY = sorted(NORMALIZERS)
CHANGES = [
    {},
    {"entmax_alpha": 2.0, "inverse_temperature": 2.5},
    {"entmax_alpha": 1.25, "inverse_temperature": 0.4},
]


def test_the_table_and_the_configuration_name_the_same() -> None:
    assert set(NORMALIZERS) == set(get_args(NormalizerName))


@pytest.mark.parametrize("changes", CHANGES, ids=["default", "sparsemax", "bisect"])
@pytest.mark.parametrize("normalizer", EVERY)
def test_weights_equal_an_independent_implementation(normalizer, changes) -> None:
    model = perturbed(config(normalizer, **changes))
    _, cache = model.run_with_cache(TOKENS)
    pattern = cache["blocks.0.attn.hook_pattern"].detach().numpy()
    x = model.W_E[TOKENS].detach().numpy()
    for batch in range(len(TOKENS)):
        for head in range(2):
            for query in range(POSITIONS):
                row = expected_row(model, x[batch], head, query)
                np.testing.assert_allclose(
                    pattern[batch, head, query, : query + 1], row, atol=1e-6, rtol=1e-6
                )
                assert (pattern[batch, head, query, query + 1 :] == 0).all()


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi"])
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
@pytest.mark.parametrize("normalizer", EVERY)
def test_fused_blockwise_and_explicit_agree(normalizer, direction, positions, monkeypatch) -> None:
    if normalizer == "linear" and positions == "alibi":
        pytest.skip("linear attention with ALiBi is refused by the configuration")
    model = perturbed(
        config(normalizer, positional_embedding_type=positions, attention_dir=direction)
    )
    with torch.no_grad():
        unseen = model(TOKENS)
        monkeypatch.setattr("resharpen.models.attention.BLOCK_ELEMENTS", 3 * 2 * POSITIONS * 2)
        blocks = model(TOKENS)
    explicit = model.run_with_hooks(
        TOKENS, fwd_hooks=[("blocks.0.attn.hook_pattern", lambda x, hook: None)]
    )
    torch.testing.assert_close(unseen, explicit, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(blocks, explicit, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("normalizer", sorted(set(EVERY) - {"softmax"}))
def test_long_inputs_never_hold_a_square_in_evaluation(normalizer, monkeypatch) -> None:
    largest = []
    scores = Attention.scores

    def noted(self, inputs, start, stop):
        found = scores(self, inputs, start, stop)
        largest.append(found.numel())
        return found

    monkeypatch.setattr(Attention, "scores", noted)
    monkeypatch.setattr("resharpen.models.attention.BLOCK_ELEMENTS", 4096)
    model = Transformer(config(normalizer))
    with torch.no_grad():
        model(torch.zeros(1, 300, dtype=torch.int64))
    assert max(largest, default=0) <= 4096 < 2 * 300 * 300
    assert bool(largest) != NORMALIZERS[normalizer].fused


@pytest.mark.parametrize("normalizer", EVERY)
def test_every_hook_point_of_the_remedy_is_live(normalizer) -> None:
    model = perturbed(config(normalizer))
    before = model(TOKENS)
    points = ("hook_raw_scores", "hook_score_factor", "hook_attn_scores", "hook_pattern")
    present = [f"blocks.0.attn.{point}" for point in points]
    present = [name for name in present if name in model.hook_dict]
    assert ("blocks.0.attn.hook_raw_scores" in present) == (normalizer != "softmax")
    has_factor = NORMALIZERS[normalizer].temperature is not None
    assert ("blocks.0.attn.hook_score_factor" in present) == has_factor
    for name in present:
        fired: list[torch.Size] = []

        def note(x: torch.Tensor, hook: object, fired: list[torch.Size] = fired) -> None:
            fired.append(x.shape)

        same = model.run_with_hooks(TOKENS, fwd_hooks=[(name, note)])
        torch.testing.assert_close(same, before, atol=1e-9, rtol=1e-9)
        assert len(fired) == 1 and len(fired[0]) == 4
        edited = model.run_with_hooks(
            TOKENS,
            fwd_hooks=[(name, lambda x, hook: x + 0.5 * torch.arange(x.shape[-1]) + 0.5 * x)],
        )
        # Hardmax follows the order of the scores alone, which this edit changes, too.
        assert (edited - before).abs().max() > 1e-4, name


def test_the_factor_is_the_one_that_the_scores_are_multiplied_by() -> None:
    for normalizer in ("temperature", "ssmax", "adaptive", "selective", "asentmax"):
        model = perturbed(config(normalizer, inverse_temperature=1.7))
        _, cache = model.run_with_cache(TOKENS)
        raw, factor, scores = (
            cache[f"blocks.0.attn.hook_{name}"]
            for name in ("raw_scores", "score_factor", "attn_scores")
        )
        visible = scores > -torch.inf
        product = (raw * factor).expand_as(scores)
        torch.testing.assert_close(scores[visible], product[visible])


@pytest.mark.parametrize("normalizer", EVERY)
def test_gradients_are_finite_and_reach_what_is_learned(normalizer) -> None:
    model = perturbed(config(normalizer))
    model(TOKENS).square().sum().backward()
    if not NORMALIZERS[normalizer].has_gradient:
        assert model.blocks[0].attn.W_Q.grad is None
        return
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_entmax_gradient_is_the_derivative() -> None:
    from resharpen.models.normalizers import entmax_weights

    for alpha in (1.25, 1.5, 2.0):
        cfg = config("entmax", entmax_alpha=alpha)
        scores = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)).double()
        scores[0, 3:] = -torch.inf
        visible = scores.isfinite()

        def weigh(flat: torch.Tensor, cfg=cfg, scores=scores, visible=visible) -> torch.Tensor:
            row = torch.full_like(scores, -torch.inf).masked_scatter(visible, flat)
            return entmax_weights(row, torch.ones(1), cfg)

        start = scores[visible].requires_grad_()
        assert torch.autograd.gradcheck(weigh, (start,), eps=1e-7, atol=1e-4)


def test_sigma_reparam_divides_by_the_largest_singular_value() -> None:
    plain = Transformer(config("softmax", attn_only=False), seed=1)
    model = Transformer(config("softmax", attn_only=False, sigma_reparam=True), seed=1)
    for name in ("W_Q", "W_K", "W_V"):
        weight = getattr(plain.blocks[0].attn, name).detach().numpy()
        largest = np.linalg.svd(np.concatenate(list(weight), axis=1), compute_uv=False)[0]
        got = getattr(model.blocks[0].attn, name).detach().numpy()
        np.testing.assert_allclose(got, weight / largest, rtol=1e-5, atol=1e-7)
    out = np.concatenate(list(plain.blocks[0].attn.W_O.detach().numpy()), axis=0)
    got = model.blocks[0].attn.W_O.detach().numpy().reshape(out.shape)
    np.testing.assert_allclose(got, out / np.linalg.norm(out, 2), rtol=1e-5, atol=1e-7)
    with torch.no_grad():
        model.blocks[0].attn.parametrizations.W_Q[0].gamma.fill_(3.0)
    matrix = torch.cat(list(model.blocks[0].attn.W_Q.detach()), dim=1)
    assert float(torch.linalg.matrix_norm(matrix, ord=2)) == pytest.approx(3.0, rel=1e-5)
    model(TOKENS).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    again = Transformer(model.cfg)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(TOKENS), model(TOKENS))


def test_bad_values_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="normalizer must be one of softmax, temperature"):
        config("sotfmax")
    with pytest.raises(ValueError, match="entmax_alpha must be more than 1"):
        config("entmax", entmax_alpha=1.0)
    with pytest.raises(ValueError, match="qk_gain must be a positive number"):
        config("softmax", qk_norm="fixed", qk_gain=-1.0)
    with pytest.raises(ValueError, match="linear attention has no scores"):
        config("linear", positional_embedding_type="alibi")
