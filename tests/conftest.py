"""Shared by every test: one thread (sizes are tiny), a fixed Hypothesis profile, no model hub."""

import os

import hypothesis
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

hypothesis.settings.register_profile(
    "resharpen", derandomize=True, deadline=None, max_examples=30, database=None
)
hypothesis.settings.load_profile("resharpen")
torch.set_num_threads(1)
