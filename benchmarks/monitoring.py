"""What the dispersion monitor costs a training run: seconds it took over seconds of the steps.

Both sides in one run: plain PyTorch steps of the same model, with the monitor told of each of them
at its defaults (every 500 steps), timed apart. Run it as ``python benchmarks/monitoring.py``.
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

from resharpen.analyses.monitoring import DispersionMonitor
from resharpen.models import Transformer, TransformerConfig

SIZES = {
    "tiny: 1 layer of 64, batch 64 x 8": ((32, 64, 1, 1), (64, 8)),
    "small: 2 layers of 64, batch 32 x 64": ((50, 64, 2, 2), (32, 64)),
    "medium: 4 layers of 128, batch 32 x 128": ((256, 128, 4, 4), (32, 128)),
}


def measure(
    shape: tuple[int, int, int, int], data: tuple[int, int], n_steps: int
) -> tuple[float, float]:
    """Seconds of one step, and of one measurement (the median of five, after a first one)."""
    d_vocab, d_model, n_layers, n_heads = shape
    model = Transformer(
        TransformerConfig(d_vocab=d_vocab, d_model=d_model, n_layers=n_layers, n_heads=n_heads)
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = DispersionMonitor(model)
    monitor.measure(0)

    def step() -> float:
        tokens = torch.randint(0, d_vocab, data)
        begun = time.perf_counter()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return time.perf_counter() - begun

    steps, looks = [], []
    for turn in range(5):
        steps += [step() for _ in range(n_steps)]
        before = monitor.seconds
        monitor.measure(turn)
        looks.append(monitor.seconds - before)
    return statistics.median(steps), statistics.median(looks)


def main() -> None:
    """Print one line a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps between two measurements")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    every = 500
    print(f"{'model':42} {'step':>10} {'measurement':>12} {'share at every 500':>19}")
    for name, (shape, data) in SIZES.items():
        step, look = measure(shape, data, arguments.steps)
        share = look / (every * step)
        print(f"{name:42} {step * 1e3:7.1f} ms {look * 1e3:9.1f} ms {share:18.2%}")


if __name__ == "__main__":
    main()
