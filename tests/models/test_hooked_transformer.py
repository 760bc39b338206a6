"""What HookedTransformer cannot express is refused, remedy by remedy."""

import pytest

from resharpen.models import TransformerConfig, hooked_transformer_config
from resharpen.models.normalizers import NORMALIZERS
from resharpen.models.placements import PLACEMENTS


def config(**changes: object) -> TransformerConfig:
    values: dict = {"d_vocab": 5, "d_model": 8, "norm_placement": "pre", "final_norm": True}
    return TransformerConfig(**{**values, **changes})


@pytest.mark.parametrize(
    "change",
    [
        *({"normalizer": name} for name in sorted(set(NORMALIZERS) - {"softmax"})),
        {"qk_norm": "fixed"},
        {"sigma_reparam": True},
    ],
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_remedies_are_refused(change) -> None:
    assert hooked_transformer_config(config())["n_layers"] == 1
    with pytest.raises(ValueError, match="HookedTransformer knows softmax attention on plain"):
        hooked_transformer_config(config(**change))


@pytest.mark.parametrize("placement", sorted(set(PLACEMENTS) - {"none", "pre", "peri"}))
def test_placements_are_refused(placement: str) -> None:
    with pytest.raises(ValueError, match="HookedTransformer knows no norm at all, pre-norm"):
        hooked_transformer_config(config(norm_placement=placement))
