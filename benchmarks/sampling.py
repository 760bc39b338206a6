"""What it costs to draw a batch, against the training step that uses it.

    python benchmarks/sampling.py [--repeats 5] [--only othello tomita]

Every task with its defaults, every language, and both boards: processor time of
``task.sample(generator, 64, length)`` over that of one training step (forward, backward, AdamW) on
such a batch, both on one thread, in turns; printed is the ratio of the fastest of each. The model
is as small as the task allows: 2 layers of width 64, for Othello 4 layers of width 128. A ratio
above 0.2 is marked.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F
from torch.optim import AdamW

from resharpen.models import Transformer, TransformerConfig
from resharpen.models.tasks import TASKS, LanguageTask, Othello, Task, seeded_generator
from resharpen.models.tasks.languages import LANGUAGES

BATCH = 64
LENGTH = 32
LIMIT = 0.2
MEMBERS = (
    *("dyck-1", "dyck-2", "dyck-2-3", "dyck-8-10", "shuffle-dyck-2", "shuffle-dyck-4"),
    *("d-2", "d-3", "d-4", "d-12", "counter-3"),
)
"""Of the families of languages."""


def cases() -> dict[str, tuple[Task, int]]:
    """Name, task and length of every row."""
    found: dict[str, tuple[Task, int]] = {}
    for name, build in TASKS.items():
        if name != "language":
            task = build()
            longest = LENGTH if task.max_length is None else min(LENGTH, task.max_length)
            found[name] = task, longest
    found["othello, 20 moves"] = found.pop("othello")[0], 20
    found["othello, 59 moves"] = Othello(), 59
    for name in (*LANGUAGES, *MEMBERS):
        for targets in ("uniform", "grammar"):
            try:
                task = LanguageTask(name, targets=targets)
            except ValueError:  # No grammar.
                continue
            length = next(n for n in range(LENGTH, 2 * LENGTH) if _has(task, n))
            found[f"{name}, {targets}"] = task, length
    return found


def _has(task: Task, length: int) -> bool:
    try:
        task.check_length(length)
    except ValueError:
        return False
    return True


def step_of(task: Task, length: int) -> Callable[[], None]:
    """One training step on a batch of the task."""
    board = isinstance(task, Othello)
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig(
            d_vocab=task.d_vocab,
            d_vocab_out=task.d_vocab_out,
            n_layers=4 if board else 2,
            d_model=128 if board else 64,
            n_heads=4,
            d_head=32 if board else 16,
            attn_only=False,
        )
    )
    optimizer = AdamW(model.parameters(), lr=1e-3)
    batch = task.sample(seeded_generator(0), BATCH, length)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        logits = model(batch.tokens)
        F.cross_entropy(logits.flatten(0, 1), batch.next_tokens.flatten()).backward()
        optimizer.step()

    return step


def fastest(first: Callable[[], None], second: Callable[[], None], n: int) -> tuple[float, float]:
    """Least processor seconds of each, in turns, after one turn that does not count."""
    best = [float("inf"), float("inf")]
    for turn in range(n + 1):
        for side, work in enumerate((first, second)):
            began = time.process_time()
            work()
            if turn:
                best[side] = min(best[side], time.process_time() - began)
    return best[0], best[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="words of which a name holds one")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'task':44}{'length':>7}{'sample ms':>11}{'step ms':>9}{'ratio':>8}")
    for name, (task, length) in cases().items():
        if asked.only and not any(word in name for word in asked.only):
            continue
        generator = seeded_generator(1)

        def draw(task: Task = task, length: int = length) -> None:
            task.sample(generator, BATCH, length)  # noqa: B023

        sample, step = fastest(draw, step_of(task, length), asked.repeats)
        mark = "  above" if sample > LIMIT * step else ""
        print(
            f"{name:44}{length:7}{1e3 * sample:11.2f}{1e3 * step:9.2f}{sample / step:8.3f}{mark}",
            flush=True,
        )


if __name__ == "__main__":
    main()
