"""One number a sequence, from errors at every position."""

import math

import pytest
import torch

from resharpen.interp.measures import all_legal_rate, legal_set_rate, mean_over_positions

NAN = math.nan


def test_positions_without_a_value_are_left_out():
    values = torch.tensor([[1.0, NAN, 4.0], [NAN, NAN, NAN], [2.0, 2.0, 2.0]])
    found = mean_over_positions(values)
    assert found[::2].tolist() == [2.5, 2.0] and found[1].isnan()


def test_all_legal_is_the_product_of_the_legal_masses():
    illegal = torch.tensor([[0.5, NAN, 0.2], [NAN, NAN, NAN], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    found = all_legal_rate(illegal.double())
    assert found[[0, 2, 3]].tolist() == pytest.approx([0.4, 0.0, 1.0])
    assert found[1].isnan()


def test_draws_at_every_position_are_all_legal_as_often_as_it_says():
    generator = torch.Generator().manual_seed(0)
    probability = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    draws = torch.stack(
        [torch.multinomial(row, 40_000, True, generator=generator) for row in probability]
    )
    rate = (draws == 0).all(0).double().mean()
    expected = all_legal_rate(probability[:, 1])
    assert float(rate) == pytest.approx(float(expected), abs=4 * math.sqrt(0.25 / 40_000))


@pytest.mark.parametrize(
    ("probability", "right"),
    [
        ([0.5, 0.25, 0.25, 0.0], True),  # the target itself
        ([0.85, 0.125, 0.025, 0.0], False),  # a legal token below half of 0.25
        ([0.7, 0.13, 0.13, 0.04], True),  # an illegal one below it
        ([0.4, 0.2, 0.2, 0.2], False),  # an illegal one above it
        ([0.625, 0.25, 0.125, 0.0], True),  # exactly half counts
    ],
)
def test_the_threshold_is_half_of_the_smallest_legal_probability(probability, right):
    target = torch.tensor([[0.5, 0.25, 0.25, 0.0]]).double()
    logits = torch.tensor([probability]).double().log()
    assert legal_set_rate(logits + 1e-12, target).item() == right
    perfect = target.log()
    both = torch.cat([perfect, logits + 1e-12]), torch.cat([target, target])
    assert legal_set_rate(*both).item() == right, "every position has to be right"


def test_a_position_without_a_distribution_does_not_count():
    target = torch.tensor([[0.5, 0.5], [NAN, NAN], [0.0, 0.0]])
    logits = torch.zeros(3, 2)
    assert legal_set_rate(logits, target).item() == 1
    assert legal_set_rate(logits[1:], target[1:]).isnan()


def test_half_precision_is_widened():
    target = torch.tensor([[[0.5, 0.5, 0.0]]], dtype=torch.float16)
    logits = torch.tensor([[[4.0, 4.0, -4.0]]], dtype=torch.float16)
    found = legal_set_rate(logits, target)
    assert found.dtype == torch.float64 and found.item() == 1


def test_another_number_of_tokens_is_refused():
    with pytest.raises(ValueError, match="as many output tokens"):
        legal_set_rate(torch.zeros(2, 5), torch.zeros(2, 4))
