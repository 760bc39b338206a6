"""What ``resharpen search`` does. Prints nothing itself: it is given a voice."""

import textwrap
from collections.abc import Callable
from typing import Any

from .report import render_report
from .saving import save_result, saying_cached
from .searching.effects import effects_frame
from .searching.figures import search_figures
from .searching.space import read_space
from .searching.study import run
from .searching.winners import winners_frame
from .storage import check_destination

__all__ = ["run_search"]

WIDTH = 100
"""Columns of the terminal at most."""


def run_search(command: Any, say: Callable[[str], None]) -> int:
    """Search the space, say what came of it, and write the result folder.

    Beside the report lie `trials.csv`, `effects.csv` and `winners.csv`, with every number.
    """
    check_destination(command.out)
    space = read_space(command.space).with_trials(command.trials)
    with saying_cached():
        search = run(
            space,
            cache=command.cache,
            jobs=command.jobs,
            backend=command.backend,
            address=command.address,
            say=say,
            asked={"space": str(command.space), "trials": command.trials},
        )
    tables = {
        "trials.csv": search.trials,
        "effects.csv": effects_frame(search.effects),
        "winners.csv": winners_frame(search.winners),
    }
    say("")
    for sentence in search.result.sentences:
        say(textwrap.fill(sentence, WIDTH, initial_indent="* ", subsequent_indent="  "))
    for heading, items in search.lists.items():
        if items:
            say(f"\n{heading}:")
        for item in items:
            say(textwrap.fill(item, WIDTH, initial_indent="  ", subsequent_indent="    "))
    say("")
    save_result(
        search.result,
        command.out,
        say,
        report=render_report(search.result, search_figures(search), search.lists),
        attachments={name: frame.to_csv(index=False) for name, frame in tables.items()},
    )
    return 0
