import itertools
import math

import pytest
import torch
from torch import nn

from resharpen.interp.gradient_noise import decompose_gradient
from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import LanguageTask, SetComplement, seeded_generator


class Bigram(nn.Module):
    """Logits are a row of a table: the gradient at the weights is that at the logits, scattered."""

    def __init__(self, size: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(size, size, generator=generator))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table[tokens] * self.frozen


class Constant(nn.Module):
    """The same logits everywhere: at n = 1 the label noise is 1 - sum t^2 to the last digit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.linspace(-1, 1, size))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*tokens.shape, -1)


def transformer(task, **fields) -> Transformer:
    model = Transformer(
        TransformerConfig(
            d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, d_model=12, n_ctx=16, **fields
        )
    )
    for block in model.blocks:
        block.attn.fused = False
    return model


def gradient(model, tokens, target):
    """One sequence's gradient in the plainest way: one backward pass."""
    log_p = model(tokens[None])[0].log_softmax(-1)
    loss = -(target * log_p).sum() / len(tokens)
    wanted = [value for value in model.parameters() if value.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, wanted)]).double()


def test_it_equals_a_loop_of_single_backward_passes():
    task = LanguageTask("dyck-1")
    model = transformer(
        task, n_layers=2, n_heads=2, attn_only=False, positional_embedding_type="alibi"
    )
    batch = task.sample(seeded_generator(1), 40, 6)
    drawn = nn.functional.one_hot(batch.next_tokens, task.d_vocab_out).float()
    exact = torch.stack(
        [gradient(model, *pair) for pair in zip(batch.tokens, batch.targets, strict=True)]
    )
    sampled = torch.stack(
        [gradient(model, *pair) for pair in zip(batch.tokens, drawn, strict=True)]
    )
    label = sampled - exact

    found = decompose_gradient(model, batch.tokens, batch.targets, batch.next_tokens)
    assert found.n_sequences == 40
    assert found.label == pytest.approx(float(label.square().sum(1).mean()), rel=1e-4)
    assert found.input == pytest.approx(float(exact.var(0).sum()), rel=1e-4)
    centred = (label - label.mean(0)) * (exact - exact.mean(0))
    assert found.cross == pytest.approx(2 * float(centred.sum()) / 39, rel=1e-3)
    norm = float(exact.mean(0).square().sum()) - float(exact.var(0).sum()) / 40
    assert found.squared_norm == pytest.approx(norm, rel=1e-3)
    # The three parts add up to the variance of what training sees, but for the mean of the label
    # noise, which is known to be zero and so not subtracted.
    drift = (label.square().sum() - 40 * label.mean(0).square().sum()) / 39
    assert found.sampled - found.label + float(drift) == pytest.approx(
        float(sampled.var(0).sum()), rel=1e-4
    )


def test_the_split_does_not_depend_on_how_the_sequences_are_chunked():
    task = SetComplement(6)
    model = transformer(task)
    batch = task.sample(seeded_generator(2), 11, 3)
    arrays = batch.tokens, batch.targets, batch.next_tokens
    whole, parts = (decompose_gradient(model, *arrays, chunk=chunk) for chunk in (64, 4))
    for name in ("label", "input", "cross", "squared_norm"):
        assert getattr(whole, name) == pytest.approx(getattr(parts, name), rel=1e-5, abs=1e-9)


def test_the_population_of_set_complement_obeys_the_law_of_total_variance():
    """Every sequence with every label once: the sample is the population, nothing is estimated."""
    v, length = 4, 2
    orders = list(itertools.permutations(range(v), length + 1))
    tokens = torch.tensor([order[:length] for order in orders])
    labels = torch.tensor([order[1:] for order in orders])
    targets = SetComplement(v).exact_targets(tokens)
    model = transformer(SetComplement(v), norm_placement="post")
    found = decompose_gradient(model, tokens, targets, labels)

    count = len(orders)
    one_hot = nn.functional.one_hot(labels, v).float()
    exact = torch.stack([gradient(model, *pair) for pair in zip(tokens, targets, strict=True)])
    sampled = torch.stack([gradient(model, *pair) for pair in zip(tokens, one_hot, strict=True)])
    # Given what the model has seen the labels average out.
    assert (sampled - exact).mean(0).abs().max() < 1e-6
    bessel = count / (count - 1)
    total = found.label + found.input / bessel + found.cross / bessel
    assert total == pytest.approx(float(sampled.var(0, correction=0).sum()), rel=1e-4)
    # A label is the next input here, so later positions know it.
    assert abs(found.cross) > 1e-3 * found.label


def test_labels_drawn_apart_from_the_inputs_have_no_cross_term():
    v = 3
    model = Bigram(v)
    targets = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [0.25, 0.25, 0.5]])
    rows = [
        (token, label)
        for token in range(v)
        for label in range(v)
        for _ in range(round(4 * float(targets[token, label])))
    ]
    tokens, labels = (torch.tensor(column)[:, None] for column in zip(*rows, strict=True))
    found = decompose_gradient(model, tokens, targets[tokens], labels)
    assert found.cross == pytest.approx(0.0, abs=1e-7)
    collision = float(targets.square().sum(1).mean())
    assert found.label == pytest.approx(1 - collision, rel=1e-6)
    assert found.transmission == pytest.approx(1.0, rel=1e-6)
    p = model.table.softmax(-1).detach()
    pull = (p - targets).double()
    # Each token's row is the only one that its gradient touches.
    mean = pull / 3
    population = float(pull.square().sum(1).mean() - mean.square().sum())
    assert found.input * 11 / 12 == pytest.approx(population, rel=1e-5)
    assert found.squared_norm + found.input / 12 == pytest.approx(
        float(mean.square().sum()), rel=1e-5
    )
    assert found.sampled_scale == pytest.approx(found.sampled / found.squared_norm)
    assert found.exact_scale == pytest.approx(found.input / found.squared_norm)


@pytest.mark.parametrize("legal", [1, 2, 8])
def test_constant_logits_show_the_closed_form(legal: int):
    size = 8
    tokens = torch.zeros(legal, 1, dtype=torch.int64)
    targets = (torch.arange(size) < legal).float().expand(legal, 1, size) / legal
    labels = torch.arange(legal)[:, None]
    if legal == 1:
        tokens, targets, labels = (
            x.repeat(2, *[1] * (x.ndim - 1)) for x in (tokens, targets, labels)
        )
    found = decompose_gradient(Constant(size), tokens, targets, labels)
    assert found.label == pytest.approx(1 - 1 / legal, abs=1e-6)
    assert float(found.logit_label.mean()) == pytest.approx(1 - 1 / legal, abs=1e-6)
    assert found.input == pytest.approx(0.0, abs=1e-6)
    assert math.isnan(found.transmission) == (legal == 1)


def test_a_gradient_that_noise_drowns_has_no_noise_scale():
    # The mean gradient is zero: the unbiased estimate of its square falls below zero.
    targets = torch.eye(2)[:, None]
    model = Constant(2)
    with torch.no_grad():
        model.logits.zero_()
    tokens = torch.zeros(2, 1, dtype=torch.int64)
    found = decompose_gradient(model, tokens, targets, torch.tensor([[0], [1]]))
    assert found.squared_norm < 0
    assert math.isnan(found.sampled_scale) and math.isnan(found.exact_scale)


def test_the_model_is_left_as_it_was():
    task = SetComplement(5)
    model = transformer(task)
    batch = task.sample(seeded_generator(0), 4, 2)
    decompose_gradient(model, batch.tokens, batch.targets, batch.next_tokens)
    assert all(value.grad is None and value.requires_grad for value in model.parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": torch.zeros(1, 2, dtype=torch.int64)}, "two sequences or more"),
        ({"targets": torch.ones(3, 2, 4) / 4}, "must be"),
        ({"targets": torch.full((2, 2, 4), 0.5)}, "must be a distribution"),
        ({"next_tokens": torch.full((2, 2), 3)}, "some probability"),
        ({"chunk": 0}, "chunk must be at least 1"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    given = {
        "tokens": torch.zeros(2, 2, dtype=torch.int64),
        "targets": torch.tensor([0.5, 0.5, 0.0, 0.0]).expand(2, 2, 4),
        "next_tokens": torch.zeros(2, 2, dtype=torch.int64),
        **change,
    }
    with pytest.raises(ValueError, match=message):
        decompose_gradient(Bigram(4), **given)
