import pytest
import torch

from resharpen.analyses.two_body import predict_from_short_inputs, why_not_two_body
from resharpen.models import SetComplement, Transformer, TransformerConfig, seeded_generator
from resharpen.models.placements import PLACEMENTS

TASK = SetComplement(12)


def model_of(placement: str, **rest: object) -> Transformer:
    values = {"d_vocab": 12, "d_model": 16, "init_range": 0.6, "norm_placement": placement, **rest}
    return Transformer(TransformerConfig(**values), seed=1).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("rest", [{}, {"n_heads": 2, "attn_only": False, "final_norm": True}])
@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
def test_long_inputs_follow_from_short_ones(placement: str, rest: dict) -> None:
    model = model_of(placement, **rest)
    for length in (1, 2, 3, 7, 11):
        tokens = TASK.sample(seeded_generator(0, length), 20, length).tokens
        prediction = predict_from_short_inputs(model, tokens)
        torch.testing.assert_close(prediction.measured, model(tokens)[:, -1].detach())
        torch.testing.assert_close(prediction.from_outputs, prediction.measured)
        linear = placement in ("none", "pre") and not rest
        assert (prediction.from_logits is not None) == linear
        if prediction.from_logits is not None:
            torch.testing.assert_close(prediction.from_logits, prediction.measured)


def test_the_prediction_is_not_the_models_own_answer() -> None:
    """With the wrong attention weights the prediction must miss, or the check could not fail."""
    model = model_of("post")
    tokens = TASK.sample(seeded_generator(0, 6), 20, 6).tokens
    honest = predict_from_short_inputs(model, tokens)
    model.add_hook(
        "blocks.0.attn.hook_pattern",
        lambda x, hook: x if x.shape[-1] < 3 else torch.ones_like(x).tril() / x.shape[-1],
        is_permanent=True,
    )
    model.add_hook(
        "blocks.0.attn.hook_z",
        lambda x, hook: x if x.shape[1] < 3 else 1.1 * x,
        is_permanent=True,
    )
    tampered = predict_from_short_inputs(model, tokens)
    assert (honest.from_outputs - honest.measured).abs().max() < 1e-9
    assert (tampered.from_outputs - tampered.measured).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ({"n_layers": 2}, "more than one block"),
        ({"positional_embedding_type": "rotary"}, r"it has positions \(rotary\)"),
    ],
)
def test_models_outside_the_hypotheses_are_refused(rest: dict, reason: str) -> None:
    model = model_of("pre", **rest)
    assert why_not_two_body(model) is not None
    with pytest.raises(ValueError, match=f"does not speak about this model: .*{reason}"):
        predict_from_short_inputs(model, torch.tensor([[1, 2, 3]]))
