"""Training several seeds stacked in one module, against one after another.

    python benchmarks/training.py [--steps 60] [--seeds 5] [--repeats 3]

Both sides run in one process, alternately, at the sizes of the set-complement study; printed are
the milliseconds a step of all seeds and the ratio within each repeat.
"""

import argparse
import time
from statistics import median

import torch

from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, train


def seconds(seeds: list[int], steps: int) -> float:
    """Time one training run of these seeds."""
    task = SetComplement(32)
    cfg = TransformerConfig(d_vocab=32, norm_placement="res_post")
    recipe = TrainingConfig(n_steps=steps, batch_size=64, targets="exact", ema_decays=())
    began = time.perf_counter()
    train(cfg, task, recipe, seeds)
    return time.perf_counter() - began


def main() -> None:
    """Run both sides and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    seeds = list(range(asked.seeds))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        seconds(seeds, 3)
        ratios = []
        for _ in range(asked.repeats):
            together = seconds(seeds, asked.steps)
            apart = sum(seconds([seed], asked.steps) for seed in seeds)
            ratios.append(together / apart)
            print(
                f"{threads} thread(s), {asked.seeds} seeds: stacked "
                f"{1e3 * together / asked.steps:.1f} ms a step, one by one "
                f"{1e3 * apart / asked.steps:.1f} ms, ratio {together / apart:.2f}"
            )
        print(f"{threads} thread(s): median ratio {median(ratios):.2f}")


if __name__ == "__main__":
    main()
