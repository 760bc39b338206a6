"""Training: one loop for every model, task and recipe."""

from .config import TrainingConfig
from .loop import TrainingDiverged, discard_state, train

__all__ = ["TrainingConfig", "TrainingDiverged", "discard_state", "train"]
