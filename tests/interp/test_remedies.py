import copy
import math

import numpy as np
import pytest
import torch

from resharpen.interp.remedies import (
    REMEDIES,
    NormGain,
    Remedy,
    adaptive_inverse_temperature,
    parse_remedy,
)
from resharpen.models import Transformer, TransformerConfig, adapt
from resharpen.models.observed import AttentionSeen


def seen(**rest: object) -> AttentionSeen:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, heads, 12, 8, generator=generator) for heads in (4, 2, 2))
    values = {"layer": 3, "query": query, "key": key, "value": value, "scale": 0.4, "causal": True}
    return AttentionSeen(**{**values, **rest})  # type: ignore[arg-type]


def weights(record: AttentionSeen) -> torch.Tensor:
    """The pattern in float64, written out."""
    key = record.key.double().repeat_interleave(2, dim=1)
    scores = record.scale * record.query.double() @ key.transpose(2, 3)
    index = torch.arange(12)
    hidden = index[None] > index[:, None]
    if isinstance(record.window, int):
        hidden |= index[None] <= index[:, None] - record.window
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)


def sharpened(record: AttentionSeen, beta: torch.Tensor) -> torch.Tensor:
    """softmax(beta * scores) from the weights: a**beta, normalised."""
    plain = weights(record)
    raised = torch.where(plain > 0, plain ** beta[..., None], 0.0)
    return raised / raised.sum(-1, keepdim=True)


N_KEY = torch.arange(1, 13).double()


@pytest.mark.parametrize(
    ("remedy", "beta"),
    [
        (Remedy("temperature", 1.7), torch.full((12,), 1.7)),
        (Remedy("log_n", reference=4), (N_KEY.log() / math.log(4)).clamp_min(1)),
        (Remedy("sqrt_log_n", reference=4), (N_KEY.log() / math.log(4)).clamp_min(1).sqrt()),
        (Remedy("ssmax", 0.43), 0.43 * N_KEY.log()),
        (Remedy("fp32"), torch.ones(12)),
    ],
    ids=lambda value: value.name if isinstance(value, Remedy) else "",
)
def test_each_remedy_is_its_inverse_temperature(remedy: Remedy, beta: torch.Tensor) -> None:
    record = seen()
    expected = sharpened(record, beta.expand(2, 4, 12))
    torch.testing.assert_close(weights(remedy(record)), expected, atol=1e-5, rtol=1e-4)


def test_n_is_the_number_of_visible_keys() -> None:
    record = seen(window=3)
    beta = (N_KEY.clamp_max(3).log() / math.log(2)).clamp_min(1)
    changed = Remedy("log_n", reference=2)(record)
    torch.testing.assert_close(
        weights(changed), sharpened(record, beta.expand(2, 4, 12)), atol=1e-5, rtol=1e-4
    )


def test_the_adaptive_temperature_is_the_papers_polynomial() -> None:
    record = seen()
    before = weights(record)
    entropy = torch.special.entr(before).sum(-1)
    beta = np.where(
        entropy > 0.5,
        np.maximum(np.polyval([-0.037, 0.481, -2.3, 4.917, -1.791], entropy.numpy()), 1.0),
        1.0,
    )
    after = weights(Remedy("adaptive")(record))
    torch.testing.assert_close(
        after, sharpened(record, torch.as_tensor(beta)), atol=1e-5, rtol=1e-4
    )
    assert (torch.special.entr(after).sum(-1) <= entropy + 1e-6).all()


def test_the_adaptive_temperature_acts_on_a_band_of_entropies_only() -> None:
    entropies = torch.tensor([0.0, 0.4, 0.6, 0.84, 0.86, 4.41, 5.93, 5.95, 9.0, torch.nan])
    beta = adaptive_inverse_temperature(entropies.double())
    assert beta[[0, 1, 2, 3, 7, 8, 9]].tolist() == [1.0] * 7
    assert (beta[4:7] > 1).all()
    assert beta[5].item() == pytest.approx(2.42, abs=0.01)


def test_only_the_chosen_heads_change() -> None:
    record = seen()
    remedy = Remedy("temperature", 3.0, heads=frozenset({(3, 1), (2, 0)}))
    changed = remedy(record)
    assert torch.equal(changed.query[:, [0, 2, 3]], record.query[:, [0, 2, 3]])
    torch.testing.assert_close(changed.query[:, 1], 3 * record.query[:, 1])
    elsewhere = Remedy("temperature", 3.0, heads=frozenset({(2, 0)}))
    assert elsewhere(record) is record


def test_fp32_widens_and_nothing_else_changes_the_dtype() -> None:
    half = seen()
    half = AttentionSeen(
        **{**vars(half), **{n: getattr(half, n).bfloat16() for n in ("query", "key", "value")}}
    )
    assert Remedy("fp32")(half).query.dtype == torch.float32
    assert Remedy("log_n", reference=2)(half).query.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("temperature:1.5", "temperature 1.5"),
        ("log_n:512", "log_n from 512"),
        ("ssmax:0.43", "ssmax 0.43"),
        ("adaptive", "adaptive"),
    ],
)
def test_flags_are_read(text: str, name: str) -> None:
    assert parse_remedy(text).name == name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Remedy("magic"), "unknown remedy 'magic': expected one of temperature, log_n"),
        (lambda: Remedy("temperature", 0.0), "strength must be a positive number"),
        (lambda: Remedy("log_n", reference=1), "reference must be at least 2 keys"),
        (lambda: parse_remedy("temperature:hot"), "written kind or kind:number"),
    ],
)
def test_bad_remedies_get_one_sentence(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("placement", ["post", "res_post", "peri"])
def test_a_norms_gain_is_multiplied_and_restored(placement: str) -> None:
    cfg = TransformerConfig(d_vocab=9, n_layers=2, d_model=8, norm_placement=placement)  # type: ignore[arg-type]
    model = Transformer(cfg)
    adapter = adapt(model)
    tokens = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    plain = adapter.run_plain(tokens)
    doubled = copy.deepcopy(model)
    with torch.no_grad():
        norm = "ln1_resid" if placement == "post" else "ln1_post"
        getattr(doubled.blocks[1], norm).w.mul_(2.0)
    with NormGain(2.0, layers=frozenset({1})).applied(adapter):
        changed = adapter.run_plain(tokens)
    torch.testing.assert_close(changed, doubled(tokens).detach(), atol=1e-5, rtol=1e-5)
    assert (changed - plain).abs().max() > 1e-3
    torch.testing.assert_close(adapter.run_plain(tokens), plain)


def test_a_model_without_a_norm_after_attention_is_refused() -> None:
    adapter = adapt(Transformer(TransformerConfig(d_vocab=9, d_model=8, norm_placement="pre")))
    with pytest.raises(ValueError, match="this model's norms are 'pre'"):
        NormGain(2.0).applied(adapter).__enter__()
    assert parse_remedy("norm_gain:2", [(3, 1)]) == NormGain(2.0, frozenset({3}))


def test_every_remedy_is_documented() -> None:
    import resharpen.interp.remedies as module

    assert all(f"``{kind}``" in (module.__doc__ or "") for kind in REMEDIES)
