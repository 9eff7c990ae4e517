# SPDX-License-Identifier: Apache-2.0
"""The table of what survives a SIGKILL: made by real deaths, true in the documents, and able to say no."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.filestream.accounting import PAGE_BYTES
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache_stress.experiments.kill_actions import ACTIONS, KEY
from lockcache_stress.experiments.kill_table import as_markdown, make_rows, survey
from tests.matrix_sampling import all_but

PAGE = Path(__file__).parents[2] / "docs/kill-table.md"


@pytest.mark.parametrize("name", all_but(["replace", "recount"], ACTIONS))
def test_the_page_in_the_documents_says_what_fresh_deaths_leave(name: str) -> None:
    rows = list(make_rows([name]))
    fresh = as_markdown(rows).split("\n## ")[1]
    written = {part.split("\n")[0]: part for part in PAGE.read_text().split("\n## ")}
    assert fresh.strip() == written[name].strip(), "lockcache-stress kill-table --markdown > docs/kill-table.md"


def test_the_page_has_every_action_and_nothing_on_it_is_wrong() -> None:
    text = PAGE.read_text()
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(ACTIONS)
    lines = [line for line in text.splitlines() if line.startswith("| 1")]
    assert len(lines) >= len(ACTIONS)
    assert all(line.endswith("| ok |") for line in text.splitlines() if line.startswith("|") and "`" in line)


def test_an_entry_that_is_served_torn_and_a_page_that_is_too_low_are_wrong(tmp_path: Path) -> None:
    root = str(tmp_path / "cache")
    ACTIONS["put"].prepare(root)()
    path = Layout(root).entry(entry_name(KEY))
    os.removexattr(path, "user.lockcache")  # an entry without a record is served as it is
    os.truncate(path, 9)
    left = survey(root)
    assert left.entry == "torn"
    assert any("not a whole entry" in each for each in left.wrong)
    shutil.rmtree(root)
    ACTIONS["put"].prepare(root)()
    with open(Layout(root).state, "r+b") as file:
        file.seek(PAGE_BYTES // 2)
        file.write(bytes(PAGE_BYTES // 2))
    assert any("too little" in each for each in survey(root).wrong)


def test_ctrl_c_while_a_death_is_forked_is_not_lost() -> None:
    """As logging does, a callback around the fork: what a signal raises within one is only printed."""
    program = """\
import os, signal
from lockcache_stress.experiments.kill_points import die
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    die(lambda: signal.pause(), 1)
except KeyboardInterrupt:
    print("interrupted")
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child left")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("interrupted\nno child left\n", "")
