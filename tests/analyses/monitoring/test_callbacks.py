import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from resharpen.analyses.monitoring import hugging_face_callback, lightning_callback
from resharpen.models import Transformer, TransformerConfig

OPTIONS = {"every": 2, "lengths": (8,), "n_sequences": 2}


class Tokens(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = torch.arange(index, index + 8) % 13
        return {"input_ids": tokens, "labels": tokens}


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=13,
            n_embd=16,
            n_layer=1,
            n_head=2,
            n_positions=16,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def train_gpt2(folder: Path, callback: Any, **more: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=5,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **{"report_to": "none", **more},
    )
    model = gpt2()
    with warnings.catch_warnings():
        # The trainer's data loader pins memory where there is no accelerator.
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        Trainer(model, arguments, train_dataset=Tokens(), callbacks=[callback]).train()
    return model


needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None,
    reason="Hugging Face's Trainer needs accelerate",
)


@needs_accelerate
def test_hugging_face_trainer_measures_at_optimiser_steps(tmp_path: Path) -> None:
    heard: list[int] = []
    callback = hugging_face_callback(**OPTIONS, log=lambda step, numbers: heard.append(step))
    assert callback.monitor is None
    assert repr(callback) == "DispersionCallback(training has not begun)"
    model = train_gpt2(tmp_path, callback)
    assert callback.monitor.steps == (2, 4)
    assert heard == [2, 4]
    assert repr(callback) == f"DispersionCallback({callback.monitor!r})"
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


@needs_accelerate
@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
def test_hugging_face_trainer_reports_to_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    callback = hugging_face_callback(**OPTIONS)
    train_gpt2(tmp_path, callback, report_to="tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "runs" / "dispersion"))
    events.Reload()
    said = events.Scalars("dispersion/layer 0/entropy")
    assert [event.step for event in said] == [2, 4]
    history = callback.monitor.history
    own = history[(history["step"] == 4) & (history["quantity"] == "entropy")]["value"]
    assert said[-1].value == pytest.approx(own.mean(), rel=1e-6)


@pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="Lightning is not installed"
)
@pytest.mark.filterwarnings("ignore:::lightning", "ignore:::pytorch_lightning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_lightning_measures_at_optimiser_steps(tmp_path: Path) -> None:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = Transformer(TransformerConfig(d_vocab=13, d_model=8))

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            logits = self.network(batch["input_ids"])
            return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    heard: list[int] = []
    callback = lightning_callback(
        **OPTIONS, attribute="network", log=lambda step, numbers: heard.append(step)
    )
    trainer = pl.Trainer(
        max_steps=5,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
        default_root_dir=str(tmp_path),
    )
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(Tokens(), batch_size=2))
    assert callback.monitor.steps == (2, 4)
    assert heard == [2, 4]
    wrong = lightning_callback(**OPTIONS)
    with pytest.raises(ValueError, match="no attribute 'model'"):
        wrong.on_train_start(trainer, module)


def test_a_misspelt_option_is_refused_before_training_begins() -> None:
    with pytest.raises(
        TypeError, match=r"hugging_face_callback\(\) .* 'evry': did you mean 'every'"
    ):
        hugging_face_callback(evry=3)
    with pytest.raises(TypeError, match=r"lightning_callback\(\) .* 'atribute': .* 'attribute'\?"):
        lightning_callback(atribute="network")


def test_lightning_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(ImportError, match="pip install lightning"):
        lightning_callback()
