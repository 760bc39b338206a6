"""Training steps a second: ours against a plain PyTorch loop, and against HookedTransformer.

    python benchmarks/training_throughput.py [--repeats 5] [--seconds 2] [--threads 1]

Ours is ``train`` with one seed: every hook point in place, the averages off. The plain loop has the
same weights, data and AdamW, and a forward pass of ``torch.nn.functional`` calls without any hook.
HookedTransformer (TransformerLens 2 and 3) is trained by the same plain loop; run this with the
interpreter of an environment of ``make compat`` to have it. Each repeat runs the sides in the order
ABBA; printed are the steps a second of each and, over repeats, the median ratio with its range.
Time is the process's own, so that one thread's ratios bear other processes beside them. Before any
timing, the first losses of the plain loop, and the first one of HookedTransformer, which learns
positions and biases besides, are checked to be ours.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
import transformer_lens
from torch import Tensor
from torch.optim import AdamW

from resharpen.models import SetComplement, TrainingConfig, Transformer, TransformerConfig, train
from resharpen.models.hooked_transformer import (
    hooked_transformer_config,
    hooked_transformer_state,
)
from resharpen.models.tasks import seeded_generator

Run = tuple[list[float], list[Tensor]]
"""Seconds of the process after each step, and the loss of each step."""


@dataclass(frozen=True)
class Size:
    """One model and recipe."""

    model: TransformerConfig
    batch_size: int
    length: int

    @property
    def task(self) -> SetComplement:
        """The task to train on."""
        return SetComplement(self.model.d_vocab)

    def recipe(self, n_steps: int) -> TrainingConfig:
        """The recipe for this many steps."""
        return TrainingConfig(
            length=self.length,
            batch_size=self.batch_size,
            n_steps=n_steps,
            targets="exact",
            schedule="constant",
            learning_rate=1e-3,
            ema_decays=(),
        )


SIZES = {
    "set-complement recipe (1 layer, d_model 64, length 8)": Size(
        TransformerConfig(d_vocab=32, norm_placement="pre", final_norm=True), 64, 8
    ),
    "2 layers, d_model 64, MLPs, length 32": Size(
        TransformerConfig(
            d_vocab=64, n_layers=2, n_heads=2, final_norm=True, attn_only=False, biases=True
        ),
        32,
        32,
    ),
    "4 layers, d_model 128, MLPs, length 64": Size(
        TransformerConfig(
            d_vocab=128,
            n_layers=4,
            n_heads=4,
            d_model=128,
            final_norm=True,
            attn_only=False,
            biases=True,
        ),
        16,
        64,
    ),
}


def plain_forward(w: dict[str, Tensor], cfg: TransformerConfig, tokens: Tensor) -> Tensor:
    """Logits of the pre-norm model, from its weights by name."""
    x = F.embedding(tokens, w["embed.W_E"])
    shape = (cfg.d_model,)
    for layer in range(cfg.n_layers):
        b = f"blocks.{layer}."
        normed = F.rms_norm(x, shape, w[b + "ln1.w"], cfg.eps)
        query, key, value = (
            (torch.einsum("bpm,hmd->bhpd", normed, w[f"{b}attn.W_{name}"]))
            + (w[f"{b}attn.b_{name}"][:, None] if cfg.biases else 0)
            for name in "QKV"
        )
        z = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        out = torch.einsum("bhpd,hdm->bpm", z, w[b + "attn.W_O"])
        x = x + (out + w[b + "attn.b_O"] if cfg.biases else out)
        if not cfg.attn_only:
            normed = F.rms_norm(x, shape, w[b + "ln2.w"], cfg.eps)
            hidden = F.gelu(normed @ w[b + "mlp.W_in"] + w[b + "mlp.b_in"])
            x = x + hidden @ w[b + "mlp.W_out"] + w[b + "mlp.b_out"]
    logits = F.rms_norm(x, shape, w["ln_final.w"], cfg.eps) @ w["unembed.W_U"]
    return logits + w["unembed.b_U"] if cfg.biases else logits


def plain_loop(
    size: Size, n_steps: int, forward: Callable[[Tensor], Tensor], parameters: list[Tensor]
) -> Run:
    """Train and return the time after each step, with its loss."""
    recipe, task = size.recipe(n_steps), size.task
    optimizer = AdamW(
        parameters, lr=recipe.learning_rate, betas=recipe.betas, weight_decay=0.0, fused=True
    )
    times, losses = [], []
    for step in range(n_steps):
        batch = task.sample(seeded_generator(0, step), recipe.batch_size, recipe.length)
        logits = forward(batch.tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(0, 1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        times.append(time.process_time())
    return times, losses


def run_plain(size: Size, n_steps: int) -> Run:
    """The plain loop."""
    state = Transformer(size.model, seed=0).state_dict()
    weights = {name: weight.clone().requires_grad_() for name, weight in state.items()}

    def forward(tokens: Tensor) -> Tensor:
        return plain_forward(weights, size.model, tokens)

    return plain_loop(size, n_steps, forward, list(weights.values()))


def run_ours(size: Size, n_steps: int) -> Run:
    """Ours."""
    times: list[float] = []
    losses: list[Tensor] = []

    def note(done: int, loss: Tensor) -> None:
        times.append(time.process_time())
        losses.append(loss[0])

    train(size.model, size.task, size.recipe(n_steps), on_step=note)
    return times, losses


def hooked_side() -> Callable[[Size, int], Run] | None:
    """HookedTransformer in the plain loop, or ``None`` where TransformerLens has no such class."""
    lens: Any = transformer_lens
    try:
        build, describe = lens.HookedTransformer, lens.HookedTransformerConfig
    except (ImportError, AttributeError):
        return None

    def run(size: Size, n_steps: int) -> Run:
        config = describe(**hooked_transformer_config(size.model))
        model = build(config)
        model.load_state_dict(hooked_transformer_state(Transformer(size.model)), strict=False)
        return plain_loop(size, n_steps, model, list(model.parameters()))

    return run


def rate(run: Run) -> float:
    """Steps a second, from the median step; the first three are left out."""
    times = run[0]
    return 1 / median(after - before for before, after in pairwise(times[3:]))


def main() -> None:
    """Run every size and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of CPU, about, for each run")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    others: dict[str, Callable[[Size, int], Run]] = {"the plain loop": run_plain}
    hooked = hooked_side()
    if hooked is None:
        print(
            "HookedTransformer is left out: this TransformerLens has none (use the interpreter of "
            "an environment that `make compat` builds)."
        )
    else:
        others["HookedTransformer"] = hooked
    for title, size in SIZES.items():
        ours_at_first = torch.stack(run_ours(size, 5)[1])
        for name, run in others.items():
            theirs_at_first = torch.stack(run(size, 5)[1])
            # HookedTransformer learns positions and biases too: only its first loss is ours.
            count = 5 if name == "the plain loop" else 1
            torch.testing.assert_close(
                theirs_at_first[:count], ours_at_first[:count], atol=1e-4, rtol=1e-4
            )
        n_steps = max(20, int(asked.seconds * rate(run_plain(size, 20))))
        for name, run in others.items():
            ratios, ours, theirs = [], [], []
            for _ in range(asked.repeats):
                order = (run_ours, run, run, run_ours)
                first, second, third, fourth = (rate(side(size, n_steps)) for side in order)
                ours.append(2 / (1 / first + 1 / fourth))
                theirs.append(2 / (1 / second + 1 / third))
                ratios.append(ours[-1] / theirs[-1])
            print(
                f"{title}, against {name}: ours {median(ours):.1f} steps a second, theirs "
                f"{median(theirs):.1f}, ratio {median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
