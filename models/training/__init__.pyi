from .config import TrainingConfig as TrainingConfig
from .loop import TrainingDiverged as TrainingDiverged
from .loop import discard_state as discard_state
from .loop import train as train
