"""The monitor as a callback: for Hugging Face's ``Trainer``, and for Lightning.

Each makes its monitor when training begins, of the model that the trainer hands it, and measures in
one process only. Afterwards ``callback.monitor`` holds what was measured.
"""

import importlib
import inspect
import os
from pathlib import Path
from typing import Any

from ...interp.arguments import check_keywords
from .monitor import DispersionMonitor

__all__ = ["hugging_face_callback", "lightning_callback"]


def hugging_face_callback(**options: Any) -> Any:
    """A callback for ``Trainer(callbacks=[...])``.

    Without ``log`` the numbers go where the trainer reports to (its ``report_to``), as far as that
    is TensorBoard (a run of its own, ``dispersion``, beside the trainer's) or Weights & Biases (the
    trainer's run).

    Args:
        **options: as :class:`~resharpen.analyses.monitoring.DispersionMonitor` takes them.

    Returns:
        A ``TrainerCallback``; its attribute ``monitor`` is None until training begins.

    Raises:
        TypeError: if an option is none of the monitor's.
    """
    _check_options("hugging_face_callback", options)
    from transformers import TrainerCallback

    class DispersionCallback(TrainerCallback):
        """Measures dispersion every so many optimiser steps."""

        def __init__(self) -> None:
            self.monitor: DispersionMonitor | None = None

        def on_train_begin(
            self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any
        ) -> None:
            if state.is_world_process_zero and self.monitor is None:
                given = dict(options)
                if given.get("log") is None:
                    given["log"] = _reported_to(args)
                self.monitor = DispersionMonitor(model, **given)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if self.monitor is not None:
                self.monitor.step(state.global_step)

        def __repr__(self) -> str:
            return _told(self.monitor)

    return DispersionCallback()


def _reported_to(args: Any) -> list[Any]:
    """What Hugging Face's trainer reports to, of what the monitor can log to."""
    targets: list[Any] = []
    if "tensorboard" in args.report_to:
        from torch.utils.tensorboard import SummaryWriter

        folder = os.environ.get("TENSORBOARD_LOGGING_DIR") or Path(args.output_dir) / "runs"
        targets.append(SummaryWriter(log_dir=str(Path(folder) / "dispersion")))
    if "wandb" in args.report_to:
        run = importlib.import_module("wandb").run
        targets += [] if run is None else [run]
    return targets


def lightning_callback(**options: Any) -> Any:
    """A callback for Lightning's ``Trainer(callbacks=[...])``.

    Without ``log`` the numbers are handed to the trainer's loggers.

    Args:
        **options: as :class:`~resharpen.analyses.monitoring.DispersionMonitor` takes them, and
            ``attribute``: name of the attribute of the ``LightningModule`` that is the
            transformer, ``"model"`` by default.

    Returns:
        A Lightning ``Callback``; its attribute ``monitor`` is None until training begins.

    Raises:
        TypeError: if an option is none of these.
        ImportError: if neither ``lightning`` nor ``pytorch_lightning`` is installed.
    """
    _check_options("lightning_callback", options, "attribute")
    given = dict(options)
    attribute = given.pop("attribute", "model")

    class DispersionCallback(_lightning_callback_class()):
        """Measures dispersion every so many optimiser steps."""

        def __init__(self) -> None:
            super().__init__()
            self.monitor: DispersionMonitor | None = None
            self._last = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.is_global_zero or self.monitor is not None:
                return
            if not hasattr(pl_module, attribute):
                raise ValueError(
                    f"{type(pl_module).__name__} has no attribute {attribute!r} that holds the "
                    "transformer: name it with lightning_callback(attribute=...)"
                )
            if given.get("log") is None:
                given["log"] = [
                    lambda step, numbers, logger=logger: logger.log_metrics(dict(numbers), step)
                    for logger in trainer.loggers
                ]
            self.monitor = DispersionMonitor(getattr(pl_module, attribute), **given)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            # Several batches make one step where gradients are accumulated.
            if self.monitor is not None and trainer.global_step > self._last:
                self._last = trainer.global_step
                self.monitor.step(self._last)

        def __repr__(self) -> str:
            return _told(self.monitor)

    return DispersionCallback()


def _check_options(function: str, options: dict[str, Any], *more: str) -> None:
    """Refuse a misspelt option here: the monitor that would is made when training begins."""
    known = [*inspect.signature(DispersionMonitor).parameters][1:]
    check_keywords(function, options, [*known, *more])


def _told(monitor: DispersionMonitor | None) -> str:
    """What a callback shows: its monitor, once there is one."""
    return f"DispersionCallback({'training has not begun' if monitor is None else repr(monitor)})"


def _lightning_callback_class() -> Any:
    for package in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(package).Callback
        except ModuleNotFoundError:
            continue
    raise ImportError(
        "lightning_callback needs Lightning, which is not installed: pip install lightning"
    )
