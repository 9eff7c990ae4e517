# SPDX-License-Identifier: Apache-2.0
"""``lockcache run --trace``: who compiled what, and who waited, as events that a viewer of traces opens."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.command import run

# Two processes want one value: the one that computes it waits until the other one waits for it. A third one is killed.
PROGRAM = """
import os, signal, subprocess, sys, time
from pathlib import Path
import lockcache
from lockcache.filestream.disk import entry_name

def compute(waiter):
    deadline = time.monotonic() + 60
    sleeps_at = Path(f"/proc/{waiter.pid}/wchan")  # at its bell, once it waits
    while not (Path("waiter").exists() and "poll" in sleeps_at.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return b"code"

with lockcache.FileStreamProgramCache() as cache:
    if sys.argv[1] == "computes":
        waiter = None
        def first():
            global waiter
            waiter = subprocess.Popen([sys.executable, __file__, "waits"])
            return compute(waiter)
        cache.get_or_compute("kernel", first, label="gemm<float>")
        assert waiter.wait() == 0
        assert subprocess.run([sys.executable, __file__, "dies"]).returncode == -signal.SIGKILL
    elif sys.argv[1] == "waits":
        Path("waiter").touch()
        assert cache.get_or_compute("kernel", lambda: b"another") == b"code"
    else:
        cache.get_or_compute("last", lambda: b"x", label="last words")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a trace, read as Chrome reads an array without an end."""
    events: list[dict[str, Any]] = json.loads(path.read_text().rstrip().removesuffix(",") + "]")
    return events


# The parts of the Trace Event Format that are used: complete events, in microseconds, and names of processes.
_NUMBER = {"type": "integer", "minimum": 0}
_COMPLETE = {
    "properties": {
        "ph": {"const": "X"},
        "name": {"type": "string", "minLength": 1},
        "cat": {"enum": ["compile", "wait"]},
        "ts": _NUMBER,
        "dur": _NUMBER,
        "pid": _NUMBER,
        "tid": _NUMBER,
        "args": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["ph", "name", "cat", "ts", "dur", "pid", "tid", "args"],
    "additionalProperties": False,
}
_PROCESS_NAME = {
    "properties": {
        "ph": {"const": "M"},
        "name": {"const": "process_name"},
        "pid": _NUMBER,
        "args": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    "required": ["ph", "name", "pid", "args"],
    "additionalProperties": False,
}
TRACE_EVENTS = {"type": "array", "items": {"type": "object", "oneOf": [_COMPLETE, _PROCESS_NAME]}}


@pytest.mark.slow
def test_compilations_and_waits_of_all_processes_are_events_also_of_a_killed_one(
    cache_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, trace = tmp_path / "program.py", tmp_path / "start.json"
    program.write_text(PROGRAM)
    ended = run("run", "--dir", cache_path, "--trace", trace, "--", sys.executable, program, "computes")
    assert ended.returncode == 0, ended.stderr
    jsonschema.validate(events_of(trace), TRACE_EVENTS)
    events = [event for event in events_of(trace) if event["ph"] == "X"]
    compiled, of_killed, waited = sorted(events, key=lambda event: (event["cat"], event["name"]))
    assert (compiled["name"], of_killed["name"]) == ("compile gemm<float>", "compile last words")
    assert (waited["cat"], waited["args"]["entry"]) == ("wait", compiled["args"]["entry"])
    assert waited["pid"] != compiled["pid"]
    # It began to wait during the compilation.
    assert compiled["ts"] <= waited["ts"] <= compiled["ts"] + compiled["dur"]
    named = {event["pid"]: event["args"]["name"] for event in events_of(trace) if event["ph"] == "M"}
    assert named.keys() == {event["pid"] for event in events}
    assert all(name.endswith(" program.py") for name in named.values())


def test_a_later_run_adds_to_the_file_and_other_files_are_refused(cache_path: Path, tmp_path: Path) -> None:
    trace, other = tmp_path / "start.json", tmp_path / "other.json"
    other.write_text("{}")
    for number in range(2):
        code = f"import lockcache; lockcache.FileStreamProgramCache().get_or_compute('{number}', lambda: b'x')"
        assert run("run", "--dir", cache_path, "--trace", trace, "--", sys.executable, "-c", code).returncode == 0
    assert [event["cat"] for event in events_of(trace) if event["ph"] == "X"] == ["compile", "compile"]
    refused = run("run", "--dir", cache_path, "--trace", other, "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{other}: not a trace of lockcache run" in refused.stderr
    assert other.read_text() == "{}"
    missing = run("run", "--dir", cache_path, "--trace", tmp_path / "no" / "start.json", "--", "true")
    assert missing.returncode == 2


def test_a_trace_that_cannot_be_written_costs_a_program_nothing(cache_path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "start.json"
    code = f"import os, lockcache; os.unlink('{trace}'); lockcache.FileStreamProgramCache().get_or_compute('a', bytes)"
    ended = run("run", "--dir", cache_path, "--trace", trace, "--", sys.executable, "-c", code)
    assert ended.returncode == 0
    assert "1 compiled" in ended.stderr
    assert not trace.exists()
