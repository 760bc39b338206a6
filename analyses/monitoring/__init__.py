"""Dispersion while a model trains: a monitor for any loop, and callbacks for two trainers."""

from .callbacks import hugging_face_callback, lightning_callback
from .monitor import DispersionMonitor

__all__ = ["DispersionMonitor", "hugging_face_callback", "lightning_callback"]
