import pytest
import torch
from transformers import masking_utils as mu

from resharpen.models.adapters.masks import read_finished_mask, read_mask_request


def request(function, n, padding=None, local_size=None, batch=2):
    return dict(
        batch_size=batch,
        q_length=n,
        kv_length=n,
        mask_function=function,
        attention_mask=padding,
        local_size=local_size,
        allow_is_causal_skip=True,
    )


def array_of(rule, n, batch=2):
    query, key = torch.arange(n)[:, None], torch.arange(n)[None, :]
    visible = torch.ones(batch, 1, n, n, dtype=torch.bool)
    if rule.causal:
        visible &= key <= query
    if rule.window is not None:
        left, right = (rule.window - 1, n) if isinstance(rule.window, int) else rule.window
        visible &= (key >= query - left) & (key <= query + right)
    return visible if rule.mask is None else visible & rule.mask


FUNCTIONS = {
    "causal": (mu.causal_mask_function, None, True),
    "all": (mu.bidirectional_mask_function, None, True),
    "window": (mu.sliding_window_causal_mask_function(7), 7, True),
    "window not named": (mu.sliding_window_causal_mask_function(7), None, False),
    "window misnamed": (mu.sliding_window_causal_mask_function(7), 8, False),
    "both sides": (mu.sliding_window_bidirectional_mask_function(5), 5, True),
    "chunks": (mu.chunked_causal_mask_function(6, torch.zeros(2, dtype=torch.int64)), 6, False),
}


@pytest.mark.parametrize("n", [3, 40, 1100])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_read_is_what_the_function_says(name, n) -> None:
    function, width, compact = FUNCTIONS[name]
    for padding in (None, torch.ones(2, n, dtype=torch.bool)):
        if padding is not None:
            padding[1, : n // 3] = False
        given = request(function, n, padding, width)
        rule = read_mask_request(given)
        full = mu.sdpa_mask(**{**given, "allow_is_causal_skip": False})
        assert torch.equal(array_of(rule, n), full.expand(2, 1, n, n))
        # Short inputs are shorter than any window.
        if n > 3:
            assert (rule.mask is None or rule.mask.shape == (2, 1, 1, n)) == compact


@pytest.mark.parametrize("n", [40, 1500])
def test_what_looks_causal_in_most_rows_is_not_taken_for_it(n) -> None:
    documents = (torch.arange(n) >= n - 3).long().repeat(2, 1)
    packed = mu.and_masks(mu.causal_mask_function, mu.packed_sequence_mask_function(documents))
    picture = torch.full((2, n), -1)
    picture[:, n // 2 + 1 : n // 2 + 3] = 0
    mixed = mu.or_masks(mu.causal_mask_function, mu.blockwise_overlay(picture))
    for function in (packed, mixed):
        rule = read_mask_request(request(function, n))
        full = mu.sdpa_mask(**{**request(function, n), "allow_is_causal_skip": False})
        assert not rule.causal and torch.equal(rule.mask, full)


def test_masks_that_a_model_built_itself() -> None:
    visible = torch.ones(1, 1, 4, 4).tril().bool()
    assert torch.equal(read_finished_mask(visible, 4, 4).mask, visible)
    slope = torch.arange(4.0).expand(1, 1, 4, 4)
    for lowest in (torch.finfo(torch.float32).min, -torch.inf):
        rule = read_finished_mask(slope.masked_fill(~visible, lowest), 4, 4)
        assert torch.equal(rule.mask, visible)
        assert torch.equal(rule.bias, slope.masked_fill(~visible, 0.0))
    assert read_finished_mask(torch.zeros(1, 1, 4, 4), 4, 4).bias is None
    for wrong in (torch.zeros(4, 4), torch.zeros(1, 1, 4, 5), torch.zeros(1, 1, 4, 4).long()):
        with pytest.raises(ValueError, match="cannot read"):
            read_finished_mask(wrong, 4, 4)
