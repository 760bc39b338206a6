"""How long a move of the explorer's sliders takes, from the new value to the figure's new numbers.

Run: ``python benchmarks/explorer.py``. Medians of 15 moves a model, the first of each left out:
seconds on the clock, and seconds of the processor, which do not grow when other work runs beside.
The way to the browser is not in them.
"""

import statistics
import sys
import time

import torch

from resharpen.analyses.exploring import Explorer, open_explorer
from resharpen.models import Transformer, TransformerConfig

MOVES = 15


def default_model(n_layers: int = 4, n_heads: int = 4) -> Transformer:
    """An untrained model of the size that the studies train, with norms before and after."""
    torch.manual_seed(0)
    config = TransformerConfig(
        d_vocab=512, n_layers=n_layers, n_heads=n_heads, d_model=64, norm_placement="peri"
    )
    return Transformer(config).eval()


CASES = {
    "set-complement-post, its task": ("set-complement-post", {}),
    "set-complement-peri, its task": ("set-complement-peri", {}),
    "4 layers x 4 heads, repeated to 256": (default_model, {}),
    "the same to 1000, past the default": (default_model, {"lengths": (128, 256, 512, 1000)}),
}


def main() -> None:
    """Print one line a model."""
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    print(f"{'model':40} {'move':12} {'clock (ms)':>12} {'processor (ms)':>15} {'view (kB)':>10}")
    for name, (source, options) in CASES.items():
        explorer = Explorer(open_explorer(source() if callable(source) else source, **options))
        assert explorer.widget is not None
        for control in ("temperature", "norm_gain"):
            slider = explorer._controls[control]
            clock, processor = [], []
            for move in range(MOVES + 1):
                wall, cpu = time.perf_counter(), time.process_time()
                slider.value = 2 ** (0.125 * (move % 8 + 1))
                clock.append(time.perf_counter() - wall)
                processor.append(time.process_time() - cpu)
                if explorer.message:
                    sys.exit(explorer.message)
            size = len(explorer.figure().to_json()) / 1000
            middle = [1000 * statistics.median(times[1:]) for times in (clock, processor)]
            print(f"{name:40} {control:12} {middle[0]:12.0f} {middle[1]:15.0f} {size:10.0f}")


if __name__ == "__main__":
    main()
