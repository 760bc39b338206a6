"""A training process that is killed outright (SIGKILL), in its own process, resumes bit for bit."""

import time
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, train
from resharpen.models.training.state import STATE_FILE

CODE = """
import torch
torch.set_num_threads(1)
from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, train
cfg = TransformerConfig(d_vocab=12, d_model=16, norm_placement="res_post", attn_dropout=0.1)
recipe = TrainingConfig(
    length=4, n_steps=100000, batch_size=8, save_every=7, schedule="constant",
    bema=((0.5, 0.2),), uniform_average=True, burn_in=3,
)
train(cfg, SetComplement(12), recipe, [0, 1], folder=folder)
"""


@pytest.mark.slow
def test_sigkill_at_any_moment_loses_nothing(tmp_path: Path, forkserver: BaseContext) -> None:
    cfg = TransformerConfig(d_vocab=12, d_model=16, norm_placement="res_post", attn_dropout=0.1)

    def run_to(n_steps: int):
        recipe = TrainingConfig(
            length=4,
            n_steps=n_steps,
            batch_size=8,
            save_every=7,
            schedule="constant",
            bema=((0.5, 0.2),),
            uniform_average=True,
            burn_in=3,
        )
        return train(cfg, SetComplement(12), recipe, [0, 1])

    for wait in (0.05, 0.11, 0.23):
        place = tmp_path / f"{wait}"
        process = forkserver.Process(target=exec, args=(CODE, {"folder": str(place)}))
        process.start()
        try:
            deadline = time.monotonic() + 120
            while not (place / STATE_FILE).exists():
                assert process.is_alive() and time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(wait)
        finally:
            process.kill()
            process.join()
        # The state says how far it came; a run of exactly that many steps is the reference.
        with safe_open(place / STATE_FILE, "pt") as file:
            done = int((file.metadata() or {})["step"])
            kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        assert done % 7 == 0
        whole = run_to(done)
        for index, checkpoint in enumerate(whole):
            for number, name in enumerate(checkpoint.weights["raw"]):
                assert torch.equal(kept[f"weight.{number}"][index], checkpoint.weights["raw"][name])
                for average, key in (("ema-0.99", "0.99"), ("uniform", "uniform")):
                    held = kept[f"average.{key}.module.weights.{number}"][index]
                    assert torch.equal(held, checkpoint.weights[average][name])
                # BEMA is read out of three tensors: E_T, the weights and the origin.
                bema, alpha = "average.bema-0.5-0.2", (10 + done) ** -0.2
                moved = kept[f"weight.{number}"] - kept[f"{bema}.origin_{number}"]
                held = kept[f"{bema}.module.weights.{number}"] + alpha * moved
                torch.testing.assert_close(held[index], checkpoint.weights["bema-0.5-0.2"][name])
