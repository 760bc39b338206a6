"""Shared by every test: one thread (sizes are tiny), a fixed Hypothesis profile, no model hub."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from multiprocessing.context import BaseContext

import hypothesis
import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

hypothesis.settings.register_profile(
    "resharpen", derandomize=True, deadline=None, max_examples=30, database=None
)
hypothesis.settings.load_profile("resharpen")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The wheel takes longest of what would come last, when the other worker has nothing left."""
    items.sort(key=lambda item: item.path.name != "test_layout.py")


# What the processes of slow tests need, all of it together seconds of imports.
PRELOADED = [
    "distributed",
    "resharpen.analyses.auditing",
    "resharpen.analyses.many_audits",
    "resharpen.analyses.searching.study",
    "resharpen.models.training.loop",
]


@pytest.fixture(scope="session")
def forkserver() -> BaseContext:
    """Makes processes that fork from one that has imported the package, none has to by itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@pytest.fixture
def forked_dask(forkserver: BaseContext) -> Iterator[None]:
    """The workers of Dask's clusters start in this way."""
    dask = pytest.importorskip("dask")
    utils = pytest.importorskip("distributed.utils", reason="dask is not installed")
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        utils.get_mp_context()  # names modules of its own the first time
        forkserver.set_forkserver_preload(PRELOADED)
        yield


class _Texts(HTMLParser):
    """Keeps the texts, and sees that every tag that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="session")
def html_texts() -> Callable[[str], list[str]]:
    """Gives the texts of HTML, in order, whose tags must all be closed."""

    def read(html: str) -> list[str]:
        parser = _Texts()
        parser.feed(html)
        parser.close()
        assert not parser.open
        return parser.texts

    return read
