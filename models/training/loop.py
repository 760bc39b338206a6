"""The one training loop: a configuration, a task and seeds become checkpoints."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import AdamW
from tqdm.auto import tqdm

from ..checkpoint import Checkpoint
from ..config import TransformerConfig
from ..ngpt import normalise_weights
from ..normalizers import NORMALIZERS
from ..placements import PLACEMENTS
from ..tasks import Task, seeded_generator
from .averaging import Averages
from .config import TrainingConfig
from .dropout import attention_dropout
from .stack import StackedTransformer
from .state import STATE_FILE, load_state, save_state


class TrainingDiverged(RuntimeError):
    """The loss stopped being a finite number."""


def train(
    cfg: TransformerConfig,
    task: Task,
    training: TrainingConfig,
    seeds: Sequence[int] = (0,),
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
    on_step: Callable[[int, Tensor], None] | None = None,
) -> list[Checkpoint]:
    """Train one model a seed, all seeds at once, and return one checkpoint a seed.

    Minimises the mean over positions of the cross entropy to the sampled next token, or to the
    exact next-token distribution. Batches and dropout depend on the seed and the step alone, so a
    run that was killed and resumes from ``folder`` ends with the same weights, bit for bit on one
    machine.

    An interrupt (ctrl-C) goes through: a model in the middle of its schedule is not what was asked
    for. With ``folder`` the same call goes on from the last saved state, which a note on the
    interrupt names; without one nothing is kept.

    Args:
        cfg: Model to train; its vocabulary must be the task's.
        task: Task to train on.
        training: Recipe.
        seeds: One model each: initial weights and data.
        folder: Where the training state is kept every ``training.save_every`` steps, so that the
            same call resumes there; see :func:`discard_state`. ``None`` keeps none.
        progress: Whether to show a progress bar.
        on_step: Called after each step with the number of steps done and the losses ``[seed]``.

    Raises:
        ValueError: If the vocabularies differ, a seed repeats, or the length is not defined.
        TrainingDiverged: If a loss is not finite. The last saved state is kept.
        CheckpointError: If ``folder`` holds a damaged state or another run's.
    """
    _check_run(cfg, task, training, seeds)
    stack = StackedTransformer(cfg, seeds)
    optimizer = AdamW(
        stack.parameters(),
        lr=training.learning_rate,
        betas=training.betas,
        weight_decay=training.weight_decay,
        fused=True,
    )
    on_sphere = PLACEMENTS[cfg.norm_placement].unit
    averages = Averages(training, stack, on_sphere=on_sphere)
    identity = {
        "model": cfg.to_dict(),
        "task": task.to_dict(),
        "training": training.to_dict(),
        "seeds": list(seeds),
    }
    place = None if folder is None else Path(folder)
    restored = None
    if place is not None:
        restored = load_state(place, identity, stack, optimizer, averages)
    if restored is None:
        averages.update(stack, 0)
    start, losses = restored or (0, torch.empty(0, len(seeds)))
    history = list(losses)
    bar = tqdm(
        range(start, training.n_steps),
        initial=start,
        total=training.n_steps,
        desc=f"training {cfg.norm_placement} {cfg.normalizer}",
        unit="step",
        disable=not progress,
        leave=False,
    )
    with _noting_interrupts(place), bar:
        for step in bar:
            for group in optimizer.param_groups:
                group["lr"] = training.rate_at(step)
            loss = _seed_losses(stack, task, training, seeds, step)
            if not torch.isfinite(loss).all():
                raise TrainingDiverged(_divergence(seeds, loss, step, place))
            # Saved here, once these weights are known to give a finite loss.
            if place is not None and step % training.save_every == 0 and step > start:
                save_state(place, identity, step, torch.stack(history), stack, optimizer, averages)
            optimizer.zero_grad(set_to_none=True)
            loss.sum().backward()
            optimizer.step()
            if on_sphere:
                normalise_weights(zip(stack.names, stack.weights, strict=True))
            averages.update(stack, step + 1)
            history.append(loss.detach())
            if on_step is not None:
                on_step(step + 1, loss.detach())
    return [
        Checkpoint(
            config=cfg,
            weights={"raw": stack.state_of(index), **averages.weights_of(stack, index)},
            task=task.to_dict(),
            training=training.to_dict(),
            seed=seed,
            losses=_loss_curve(torch.stack(history)[:, index]),
        )
        for index, seed in enumerate(seeds)
    ]


def discard_state(folder: str | os.PathLike[str]) -> None:
    """Remove the training state in ``folder``, and the folder if nothing else is in it.

    Call it once the checkpoints are safe.
    """
    place = Path(folder)
    (place / STATE_FILE).unlink(missing_ok=True)
    if place.is_dir() and not any(place.iterdir()):
        place.rmdir()


def _seed_losses(
    stack: StackedTransformer,
    task: Task,
    training: TrainingConfig,
    seeds: Sequence[int],
    step: int,
) -> Tensor:
    batches = [
        task.sample(seeded_generator(seed, step), training.batch_size, training.length)
        for seed in seeds
    ]
    tokens = torch.stack([batch.tokens for batch in batches])
    kept = None
    if stack.cfg.attn_dropout:
        drawn = [attention_dropout(stack.cfg, seed, step, *tokens.shape[1:]) for seed in seeds]
        kept = torch.stack(drawn)
    logits = stack(tokens, kept)
    if training.targets == "sampled":
        wanted = torch.stack([batch.next_tokens for batch in batches]).flatten()
    else:
        wanted = torch.stack([batch.targets for batch in batches]).flatten(0, 2)
    if len(seeds) == 1:
        return F.cross_entropy(logits.flatten(0, 2), wanted)[None]
    losses = F.cross_entropy(logits.flatten(0, 2), wanted, reduction="none")
    return losses.view(len(seeds), -1).mean(1)


def _loss_curve(losses: Tensor, n_points: int = 100) -> tuple[float, ...]:
    """Means over at most ``n_points`` equal stretches of the run."""
    stretches = losses.double().tensor_split(min(n_points, len(losses)))
    return tuple(float(stretch.mean()) for stretch in stretches)


def _check_run(
    cfg: TransformerConfig, task: Task, training: TrainingConfig, seeds: Sequence[int]
) -> None:
    if not NORMALIZERS[cfg.normalizer].has_gradient:
        raise ValueError(
            f"normalizer={cfg.normalizer!r} has no gradient: train with another, such as softmax, "
            "and evaluate the weights with it"
        )
    if (cfg.d_vocab, cfg.output_size) != (task.d_vocab, task.d_vocab_out):
        raise ValueError(
            f"the model's vocabulary must be the task's: d_vocab={task.d_vocab}, d_vocab_out="
            f"{task.d_vocab_out}; got d_vocab={cfg.d_vocab}, d_vocab_out={cfg.output_size}"
        )
    if not seeds or len(set(seeds)) != len(seeds) or any(seed < 0 for seed in seeds):
        raise ValueError(f"seeds must be distinct and zero or more, at least one; got {seeds}")
    if task.max_length is not None and training.length > task.max_length:
        raise ValueError(
            f"the training length must be at most {task.max_length} for this task; "
            f"got {training.length}"
        )


@contextmanager
def _noting_interrupts(place: Path | None) -> Iterator[None]:
    """Let an interrupt go through, with a note of what is left."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        goes_on = place is not None and (place / STATE_FILE).exists()
        then = "asked again, it goes on from there" if goes_on else "asked again, it starts afresh"
        interrupt.add_note(f"training was interrupted: {_kept(place)}; {then}")
        raise


def _kept(place: Path | None) -> str:
    if place is None:
        return "no state was kept (no folder was given)"
    if not (place / STATE_FILE).exists():
        return f"no state was saved in {place} yet"
    return f"the last good state is kept in {place / STATE_FILE}"


def _divergence(seeds: Sequence[int], loss: Tensor, step: int, place: Path | None) -> str:
    broken = [seed for seed, value in zip(seeds, loss, strict=True) if not torch.isfinite(value)]
    return (
        f"the loss of seed {', '.join(map(str, broken))} stopped being finite at step {step}: "
        f"lower the learning rate or lengthen the warm-up; {_kept(place)}"
    )
