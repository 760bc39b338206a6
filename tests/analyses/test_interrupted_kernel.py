"""A notebook's kernel is interrupted in the middle of an audit; the next cell goes on working."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

jupyter_client = pytest.importorskip("jupyter_client", reason="comes with the notebook extra")

pytestmark = pytest.mark.slow

PREPARE = """
import warnings
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from resharpen.analyses import audit_adapted

torch.set_num_threads(1)
torch.manual_seed(0)
sizes = dict(n_embd=32, n_layer=2, n_head=2, n_positions=128, vocab_size=64)
model = GPT2LMHeadModel(GPT2Config(**sizes, attn_implementation="sdpa")).train()
model.transformer.h[0].eval()

def said(done, total, length):
    if done <= 4:
        print("begun", flush=True)

def look():
    modes = [part.training for part in model.modules()]
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules())
    return modes, hooks, model.config._attn_implementation, torch.is_grad_enabled()

before = look()
"""

LONG = """
found = audit_adapted(
    model, probe="random", lengths=[16, 128], n_sequences=100_000, batch_tokens=512, progress=said
)
"""

USE = """
assert look() == before
assert not found.result.provenance.completed
rows = found.result.table
assert 4 <= rows["n_obs"].max() < 100_000
assert len(found.classes) == 4 and found.result.verdicts
model(torch.arange(8)[None]).logits.sum().backward()
again = audit_adapted(model, probe="random", lengths=[16, 32], n_sequences=4)
assert again.result.provenance.completed
print("usable", len(rows) > 0)
"""

TRAIN = """
from resharpen.models import SetComplement, TrainingConfig, TransformerConfig, train

def step_said(step, losses):
    if step == 1:
        print("begun", flush=True)

config = TransformerConfig(d_vocab=8, d_model=8, attn_only=True)
recipe = TrainingConfig(length=3, n_steps=1_000_000, batch_size=4)
train(config, SetComplement(8), recipe, on_step=step_said)
"""


@pytest.fixture
def kernel() -> Iterator[tuple[Any, Any]]:
    manager, client = jupyter_client.manager.start_new_kernel(startup_timeout=120)
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: Any, code: str) -> tuple[dict[str, Any], str]:
    """Run a cell to its end: the reply, and what it wrote."""
    written: list[str] = []

    def listen(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            written.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=listen, timeout=120)
    return reply["content"], "".join(written)


def run_and_interrupt(manager: Any, client: Any, code: str) -> tuple[dict[str, Any], str]:
    """Run a cell, interrupt it a little after it has said that it began: the reply and the text."""
    client.execute(code)
    written, end = "", time.monotonic() + 120
    while "begun" not in written:
        assert time.monotonic() < end, written
        message = client.get_iopub_msg(timeout=120)
        if message["msg_type"] == "stream":
            written += message["content"]["text"]
        assert message["msg_type"] != "error", message["content"]
    time.sleep(0.3)
    manager.interrupt_kernel()
    reply = client.get_shell_msg(timeout=120)
    while True:
        message = client.get_iopub_msg(timeout=120)
        content = message["content"]
        if message["msg_type"] == "stream":
            written += content["text"]
        if message["msg_type"] == "status" and content["execution_state"] == "idle":
            return reply["content"], written


def test_the_next_cell_uses_what_was_finished(kernel: tuple[Any, Any]) -> None:
    manager, client = kernel
    reply, written = run(client, PREPARE)
    assert reply["status"] == "ok", written
    reply, written = run_and_interrupt(manager, client, LONG)
    assert reply["status"] == "ok", reply
    assert "interrupted: the table holds the" in written
    reply, written = run(client, USE)
    assert reply["status"] == "ok", (reply.get("evalue"), "\n".join(reply.get("traceback", ())))
    assert "usable True" in written
    reply, written = run_and_interrupt(manager, client, TRAIN)
    assert reply["ename"] == "KeyboardInterrupt"
    # The kernel sends no traceback where the interrupt lands outside of the cell's own frames.
    said = "\n".join(reply["traceback"])
    assert not said or "no folder was given" in said
