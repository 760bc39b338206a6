"""A tap that lies is found out, each kind of lie by its own message; honest taps pass."""

import pytest
import torch
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from resharpen.interp.verify import (
    causal_mask,
    check_tap,
    tap_status,
    verify_taps,
    visible_keys,
)
from resharpen.models import Transformer, TransformerConfig, construct_set_complement
from resharpen.models.normalizers import NORMALIZERS
from resharpen.models.placements import PLACEMENTS
from resharpen.models.sites import Site, WeightRule, list_sites

TOKENS = torch.tensor([[3, 1, 4, 0], [2, 0, 1, 3]])


@pytest.mark.parametrize("normalizer", sorted(NORMALIZERS))
def test_every_site_of_every_normalizer_is_verified(normalizer: str) -> None:
    cfg = TransformerConfig(d_vocab=6, n_heads=2, d_model=8, normalizer=normalizer)  # type: ignore
    model = Transformer(cfg, seed=1)
    found = verify_taps(model, TOKENS)
    assert {status.reason for status in found.values()} == {""}
    assert found["blocks.0.attn.hook_pattern"].status == "ok"
    assert ("blocks.0.attn.hook_raw_scores" in found) == (normalizer != "softmax")


@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"attn_only": False, "final_norm": True, "normalization_type": "LN"},
        {"positional_embedding_type": "rotary", "n_layers": 1},
        {"positional_embedding_type": "alibi", "attention_dir": "bidirectional", "n_layers": 1},
        {"positional_embedding_type": "standard", "biases": True, "n_layers": 1},
    ],
)
def test_every_site_of_our_models_is_verified(placement, change):
    config = {"d_vocab": 5, "n_layers": 2, "n_heads": 2, "d_model": 8, **change}
    model = Transformer(TransformerConfig(norm_placement=placement, **config), seed=1)
    statuses = verify_taps(model, TOKENS)
    assert set(statuses) == {site.name for site in list_sites(model)}
    assert {status.reason for status in statuses.values()} == {""}


@pytest.mark.parametrize("placement", ["none", "pre", "post", "res_post", "peri"])
def test_constructed_models_are_verified_although_many_edits_would_not_show(placement):
    # Uniform attention, zero query weights, eps = 0: only a NaN shows on every live path.
    model = construct_set_complement(6, norm_placement=placement, eps=0.0).model()
    assert {s.reason for s in verify_taps(model, TOKENS).values()} == {""}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_are_verified(dtype):
    config = TransformerConfig(d_vocab=5, n_layers=2, n_heads=2, d_model=8, norm_placement="peri")
    model = Transformer(config, seed=1).to(dtype)
    assert {s.reason for s in verify_taps(model, TOKENS).values()} == {""}


class Liar(HookedRootModule):
    """One attention head with identity values, and one lie."""

    def __init__(self, lie=None):
        super().__init__()
        self.lie = lie
        self.blocks = torch.nn.ModuleList([torch.nn.Module()])
        self.blocks[0].attn = attn = torch.nn.Module()
        attn.hook_attn_scores = HookPoint()
        attn.hook_pattern = HookPoint()
        self.blocks[0].hook_attn_out = HookPoint()
        self.hook_embed = HookPoint()
        self.setup()

    def forward(self, tokens):
        lie, attn = self.lie, self.blocks[0].attn
        x = self.hook_embed(torch.nn.functional.one_hot(tokens, 6).float())
        scores = (x @ x.mT + 0.3 * torch.arange(x.shape[1]))[:, None]
        mask = causal_mask(x.shape[1], x.shape[1])
        shown = scores if lie == "scores without mask" else scores.masked_fill(~mask, -torch.inf)
        pattern = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        if lie == "scores after softmax":
            shown = pattern.masked_fill(~mask, torch.finfo(torch.float32).min)
        if lie == "scores are dead":
            attn.hook_attn_scores(shown)
        else:
            shown = attn.hook_attn_scores(shown)
            if lie not in ("scores without mask", "scores after softmax"):
                pattern = shown.softmax(-1)
        if lie == "pattern is a copy":
            attn.hook_pattern(pattern.clone())
        elif lie == "pattern is negative":
            pattern = attn.hook_pattern(2 * pattern - 1 / 8)
        elif lie == "pattern lost a share":
            pattern = attn.hook_pattern(0.7 * pattern)
        elif lie == "pattern sees the future":
            pattern = attn.hook_pattern(scores.softmax(-1))
        elif lie == "pattern lacks the head axis":
            pattern = attn.hook_pattern(pattern[:, 0])[:, None]
        elif lie == "pattern is NaN":
            attn.hook_pattern(pattern * torch.nan)
        elif lie != "pattern never fires":
            pattern = attn.hook_pattern(pattern)
        if lie == "observing matters" and attn.hook_pattern._forward_hooks:
            pattern = pattern.square()
        return x + self.blocks[0].hook_attn_out((pattern @ x[:, None])[:, 0])


SCORES, PATTERN = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"


@pytest.mark.parametrize(
    ("lie", "name", "message"),
    [
        ("pattern is a copy", PATTERN, "editing .* does not change the logits"),
        ("scores are dead", SCORES, "editing .* does not change the logits"),
        ("pattern is negative", PATTERN, "holds a negative weight, -0.12"),
        ("pattern lost a share", PATTERN, "must sum to 1 over the visible keys; the worst is off"),
        ("pattern sees the future", PATTERN, "on a key after its query"),
        ("pattern lacks the head axis", PATTERN, r"must have axes \[batch=2, head, query=4, key=4"),
        ("pattern is NaN", PATTERN, "holds NaN or infinite weights"),
        ("pattern never fires", PATTERN, "is declared but never fired"),
        ("observing matters", PATTERN, "observing .* changes the logits by"),
        ("scores without mask", SCORES, "does not mask the keys after the query"),
        ("scores after softmax", SCORES, "the softmax of .* is not .*: a weight differs by"),
    ],
)
def test_each_lie_is_found_out(lie, name, message):
    model = Liar(lie)
    with pytest.raises(ValueError, match=message):
        check_tap(model, TOKENS, name)
    status = tap_status(model, TOKENS, name)
    assert status.status == "unavailable"
    assert status.site.name == name
    together = verify_taps(model, TOKENS)
    assert together[name].reason == status.reason
    assert together["hook_embed"].status == "ok"


def test_an_honest_model_passes():
    assert {status.status for status in verify_taps(Liar(), TOKENS).values()} == {"ok"}
    check_tap(Liar(), TOKENS, PATTERN)


def test_rows_that_need_not_sum_to_one_can_be_said_so():
    model = Liar("pattern lost a share")
    check_tap(model, TOKENS, PATTERN, rule=WeightRule(row_sum=None))
    check_tap(model, TOKENS, PATTERN, rule=WeightRule(row_sum=0.7))
    check_tap(model, TOKENS, SCORES, rule=WeightRule(softmax=False))
    with pytest.raises(ValueError, match="the softmax of"):
        check_tap(model, TOKENS, SCORES)


def test_a_size_that_the_configuration_contradicts_is_found():
    model = Transformer(TransformerConfig(d_vocab=5, n_heads=2, d_model=8), seed=1)
    wrong = Site("blocks.0.hook_attn_out", ("batch", "pos", "1"), 0, "norm_scale")
    with pytest.raises(ValueError, match=r"must have axes \[batch=2, pos=4, 1\]; got \[2, 4, 8\]"):
        check_tap(model, TOKENS, wrong)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="no known kind of site"):
        check_tap(Liar(), TOKENS, "blocks.0.hook_mystery")
    with pytest.raises(ValueError, match=r"no hook point 'blocks.3"):
        check_tap(Liar(), TOKENS, "blocks.3.attn.hook_pattern")


@pytest.mark.parametrize("masked", [-torch.inf, torch.finfo(torch.float16).min])
def test_masked_scores_are_not_visible_and_nan_is(masked):
    scores = torch.tensor([1.0, masked, torch.nan, -6e4], dtype=torch.float16)
    assert visible_keys(scores).tolist() == [True, False, True, True]


def test_causal_mask_of_the_last_queries():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]
