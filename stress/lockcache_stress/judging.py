"""After a run: its histories are judged, and kept where the user wants them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from glob import glob

from lockcache_stress.history.operations import load_histories
from lockcache_stress.history.timeline import as_html, as_text
from lockcache_stress.history.verdict import judge_histories
from lockcache_stress.outcome import Outcome

__all__ = ["judge", "keep"]


def judge(outcome: Outcome, progress: Callable[[float], object]) -> None:
    """Judge every key's history; the smallest illegal part becomes the first of the findings."""
    outcome.histories = judged = judge_histories(load_histories(outcome.plan.control), progress)
    if judged.smallest is not None:
        key, reduced = judged.smallest
        outcome.findings.insert(0, {"key": key, "error": f"the history of key {key} is illegal:\n{as_text(reduced)}"})


def keep(outcome: Outcome, folder: str) -> None:
    """Copy the records into ``folder`` (read them with ``load_histories``), and draw what is illegal there."""
    os.makedirs(folder, exist_ok=True)
    for path in glob(os.path.join(outcome.plan.control, "history-*.bin")):
        shutil.copy(path, folder)
    if outcome.histories is not None and outcome.histories.smallest is not None:
        key, reduced = outcome.histories.smallest
        with open(os.path.join(folder, f"illegal-key-{key}.html"), "w") as file:
            file.write(as_html(reduced, f"{outcome.title}: key {key}"))
