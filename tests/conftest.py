"""Shared by every test: one thread (sizes are tiny), a fixed Hypothesis profile."""

import hypothesis
import torch

hypothesis.settings.register_profile(
    "resharpen", derandomize=True, deadline=None, max_examples=30, database=None
)
hypothesis.settings.load_profile("resharpen")
torch.set_num_threads(1)
