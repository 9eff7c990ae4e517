# SPDX-License-Identifier: Apache-2.0
"""The operator's command, run as an operator runs it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lockcache import FileStreamProgramCache
from lockcache.cli.program import cli
from lockcache.errors import how_to_install
from lockcache.lowlevel import entry_name
from tests.cli.command import LOCKCACHE, run
from tests.daemon.daemon_process import RunningDaemon
from tests.matrix_sampling import EXHAUSTIVE


def test_path_prints_the_directory_that_the_environment_names(cache_path: Path) -> None:
    assert run("path", LOCKCACHE_DIR=str(cache_path)).stdout == f"{cache_path}\n"


def test_recount_says_by_how_much_the_accounting_was_wrong(filled: Path) -> None:
    [largest] = [file for file in (filled / "entries").glob("*/*") if file.stat().st_size == 1000]
    largest.unlink()
    found = json.loads(run("recount", "--json", str(filled)).stdout)
    assert (found["shards_repaired"], found["drift_bytes"], found["bytes"]) == (1, 1000, 500)


@pytest.mark.long
def test_clear_and_policy_set_tell_programs_what_they_did(filled: Path) -> None:
    found = json.loads(run("policy", "set", "--json", "--max-size", "1M", filled).stdout)
    assert found == {
        "path": str(filled),
        "max_size_bytes": 1_000_000,
        "by_operator": True,
        "priority": "value",
        "is_default": False,
        "seed": None,
        "held_bytes": 1500,
        "held_entries": 2,
        "evicts_bytes": 0,
    }
    for word, priority in (("lru", "lru"), ("cost", "value")):
        changed = run("policy", "set", "--json", "--policy", word, filled)
        assert json.loads(changed.stdout) == {**found, "priority": priority}
    cleared = json.loads(run("clear", "--yes", "--json", filled).stdout)
    assert cleared == {"path": str(filled), "removed_entries": 2, "kept_entries": 0}


@pytest.mark.parametrize("words", [("clear",), ("evict", "--to", "1B")])
def test_where_nobody_answers_nothing_is_removed_and_that_is_said(words: tuple[str, ...], filled: Path) -> None:
    ended = run(*words, filled)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith("\nlockcache: nothing was removed: nobody answered yes or no; --yes answers for you\n")
    assert len(FileStreamProgramCache(filled)) == 2


def test_an_answer_of_no_and_what_was_removed_are_said(filled: Path) -> None:
    ended = subprocess.run([LOCKCACHE, "clear", filled], input="n\n", capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith("lockcache: nothing was removed\n")
    name = json.loads(run("ls", "--json", filled).stdout.splitlines()[0])["name"]
    assert run("rm", name, "--dir", filled).stdout == f"removed 1 entry from {filled}\n"
    assert run("clear", "--yes", filled).stdout == f"removed 1 entry from {filled}\n"


@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
def test_what_an_eviction_cannot_bring_below_its_size_is_said(how: str, filled: Path) -> None:
    ended = run("evict", "--to", "1B", "--older-than", "1d", how, filled)
    assert ended.returncode == 0
    assert "kept entries" not in ended.stdout
    left = "remaining" if how == "--yes" else "would remain"
    words = [line.rpartition("  ")[0].strip() for line in ended.stdout.splitlines()[-2:]]
    assert words == [f"{left}", f"{left} entries"]
    assert "lockcache: 1.5 kB remain, more than --to: entries that were not chosen" in ended.stderr
    assert "remain" not in run("evict", "--to", "9M", how, filled).stderr


@pytest.mark.long
@pytest.mark.parametrize("size, will", [("none", "put its own back"), ("2M", "obey this cap")])
def test_setting_a_policy_says_what_a_running_daemon_will_make_of_it(filled: Path, size: str, will: str) -> None:
    with RunningDaemon("--max-size", "1M", filled) as daemon:
        ended = run("policy", "set", "--max-size", size, str(filled))
        assert ended.returncode == 0
        assert ended.stderr.count("\n") == 1
        assert f"pid {daemon.process.pid} on " in ended.stderr
        assert will in ended.stderr
        assert daemon.wait_for("cap")["max_size_bytes"] == (1_000_000 if size == "none" else 2_000_000)


def test_setting_a_policy_says_nothing_of_a_daemon_that_was_killed(filled: Path) -> None:
    with RunningDaemon("--max-size", "1M", filled) as daemon:
        daemon.end(signal.SIGKILL)
    assert (filled / "lockcache" / "daemon.json").exists()
    assert run("policy", "set", "--max-size", "2M", str(filled)).stderr == ""


PROGRAMS = {
    "lockcache-daemon": "lockcache_daemon.cli",
    "lockcache-stress": "lockcache_stress.cli",
}


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "words, missing, extra",
    [
        ("lockcache-daemon --metrics-file a.prom --max-size 1M .", "prometheus_client", "daemon"),
        ("lockcache-stress same-key --report file", "matplotlib", "report"),
        pytest.param("lockcache-stress same-key --junit file", "junitparser", "report", marks=EXHAUSTIVE),
    ],
)
def test_without_an_extra_each_program_says_the_same_before_it_begins_and_exits_2(
    words: str, missing: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, *options = words.split()
    code = f"import sys; sys.modules[{missing!r}] = None; from {PROGRAMS[program]} import main; main()"
    ended = run_python("-c", code, *options)
    asked = f"{options[-2] if extra == 'report' else options[0]} "
    said = rf"{program}: {asked}needs {missing}(\.\w+)?: {re.escape(how_to_install(extra))}\n"
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(said, ended.stderr)
    assert list(tmp_path.iterdir()) == []


def test_rm_removes_the_entries_that_are_named_and_accounts_for_them(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        cache["kept"] = b"value"
        cache["by key"] = b"value"
        cache[b"\x00\xff"] = b"value"
        cache["by hash"] = b"value"
        ended = run("rm", "by key", "hex:00ff", entry_name(b"by hash")[:12], "by key", "--json", "--dir", filled)
        assert len(json.loads(ended.stdout)["removed"]) == 3
        assert [cache.get(key) for key in ("kept", "by key", b"\x00\xff", "by hash")] == [b"value", None, None, None]
        assert not cache.recount()


def test_rm_removes_nothing_if_one_of_the_entries_is_not_there(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        cache["there"] = b"value"
        ended = run("rm", "there", "not there", "--dir", filled)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert "there is no entry 'not there'" in ended.stderr
        assert cache["there"] == b"value"


def test_before_the_first_program_ran_nothing_is_cached_yet(tmp_path: Path) -> None:
    ended = run("ls", XDG_CACHE_HOME=str(tmp_path), LOCKCACHE_DIR="")
    assert ended.returncode == 2
    assert f"{tmp_path}/lockcache: empty: the first program that uses it creates the cache" in ended.stderr
    ended = run("why", "--last", XDG_CACHE_HOME=str(tmp_path), LOCKCACHE_DIR="")
    assert ended.returncode == 2
    assert f"{tmp_path}/lockcache: empty: the first program that uses it creates the cache" in ended.stderr
    assert "; for another directory: lockcache why --last 1 DIR; see lockcache why --help\n" in ended.stderr


def test_a_path_of_any_letters_can_be_copied_from_what_is_said(tmp_path: Path) -> None:
    root = tmp_path / "üñï-日本"
    FileStreamProgramCache(root)["k"] = b"x"
    assert f" {root}\n" in run("stats", root).stdout
    root.chmod(0o777)
    assert f"chmod -R go-w '{root}'" in run("stats", root).stderr


def _help_of_all(command: click.Command, parent: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    context = click.Context(command, parent, name, terminal_width=80)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _help_of_all(found, context, each)


def test_no_line_of_any_help_is_wider_than_a_terminal() -> None:
    shown = dict(_help_of_all(cli, None, "lockcache"))
    assert "lockcache bundle make" in shown
    assert [(name, line) for name, text in shown.items() for line in text.splitlines() if len(line) > 80] == []
