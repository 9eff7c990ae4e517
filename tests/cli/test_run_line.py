# SPDX-License-Identifier: Apache-2.0
"""The last line of ``lockcache run``, and ``--most-compiles``: what the processes of one command did, and no others."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import RUN_HEAD
from tests.cli.command import run, start
from tests.processes.crowd import HANG_SECONDS

BEGIN = "import os, signal, sys, threading, time; from lockcache import FileStreamProgramCache as C\ncache = C()\n"
#: Compiles "k", which is said to take 2.5 s, if it is not there, and looks it up twice more.
ONCE = f"""{BEGIN}
found = cache.begin("k", label="scale<float>")
if hasattr(found, "store"):
    found.store(b"code", 2_500_000_000)
cache.get("k"), cache.get("k")
"""


def said(path: Path, program: str, *options: str, code: int = 0, **variables: str) -> str:
    """Returns what ``lockcache run`` prints of a program, without its own name and the directory."""
    ended = run("run", "--dir", path, *options, "--", sys.executable, "-c", program, **variables)
    assert ended.returncode == code, ended
    return ended.stderr.removeprefix("lockcache: ").replace(f"; in {path}\n", "")


def test_what_a_process_stored_itself_is_not_found_and_the_next_run_finds_it_once(cache_path: Path) -> None:
    assert said(cache_path, ONCE) == "1 process: 0 found, 1 compiled"
    assert said(cache_path, ONCE) == "1 process: 1 found, 0 compiled; 2.5 s of processor time not spent"
    assert os.listdir(cache_path / "lockcache" / "runs") == []


@pytest.mark.slow
def test_two_jobs_at_once_in_one_directory_do_not_count_each_other(cache_path: Path) -> None:
    wait = "print('up', flush=True); sys.stdin.read()"
    first = start("--dir", str(cache_path), "--", sys.executable, "-c", f"{ONCE}{wait}")
    assert first.stdout.readline() == "up\n"
    second = start("--dir", str(cache_path), "--", sys.executable, "-c", f"{ONCE}\ncache['l'] = b'other'\n{wait}")
    assert second.stdout.readline() == "up\n"
    _, first_said = first.communicate(timeout=HANG_SECONDS)
    _, second_said = second.communicate(timeout=HANG_SECONDS)
    assert "1 process: 0 found, 1 compiled; in" in first_said
    assert "1 process: 1 found, 1 compiled; 2.5 s of processor time not spent; in" in second_said


@pytest.mark.slow
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"])
def test_what_a_killed_process_compiled_is_counted_and_its_end_is_missed(end: str, cache_path: Path) -> None:
    program = f"{BEGIN}pid = os.fork()\nif not pid: cache['k'] = b'code'; {end}\nos.waitpid(pid, 0)"
    assert said(cache_path, program) == "1 process: 0 found, 1 compiled; 1 process ended without a last report"
    # Hits are written with the next report: the first one of a child, by which it is known, is.
    program = f"{BEGIN}pid = os.fork()\nif not pid: cache.get('k'); {end}\nos.waitpid(pid, 0)"
    found = said(cache_path, program)
    assert found.startswith("1 process: 1 found"), found
    assert found.endswith("; 1 process ended without a last report"), found


def test_a_framework_that_goes_on_with_its_own_cache_is_in_the_line(cache_path: Path, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("__version__ = '9.9'")
    found = said(cache_path, f"import cupy\n{ONCE}", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    line = found.splitlines()[-1]
    assert line.startswith("lockcache: 1 process: 0 found, 1 compiled; cupy went on with its own cache (")
    assert line.count("cupy") > 1, "the reason is missing"


def test_and_so_is_one_in_a_python_without_lockcache(cache_path: Path, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").touch()
    program = "import sys; sys.modules['lockcache'] = None; import cupy"
    found = said(cache_path, program, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    line = found.splitlines()[-1]
    assert line.startswith("lockcache: 1 process: 0 found, 0 compiled; cupy went on with its own cache (ModuleNotF"), (
        line
    )


def test_a_copy_in_a_tier_is_not_compiled(cache_path: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from lockcache import FileStreamProgramCache as C, TieredProgramCache\n"
        "cache = TieredProgramCache(C(), C({shared!r}))\n"
        "cache.get_or_compute('k', lambda: b'code')\ncache.get('k')"
    ).format(shared=str(tmp_path / "shared"))
    assert said(cache_path, program) == "1 process: 0 found, 1 compiled"
    with FileStreamProgramCache(cache_path) as cache:
        cache.clear()  # as on another node
    assert said(cache_path, program, "--most-compiles", "0").startswith("1 process: 1 found, 0 compiled;")


def test_a_directory_that_is_only_read_has_a_line_too_and_is_not_changed(cache_path: Path) -> None:
    said(cache_path, ONCE)
    os.rmdir(cache_path / "lockcache" / "runs")
    found = said(cache_path, f"{ONCE}\ncache['l'] = b'other'", LOCKCACHE_READONLY="1")
    assert found.splitlines()[-1].removeprefix("lockcache: ") == (
        "1 process: 1 found, 1 compiled (1 of them not stored); 2.5 s of processor time not spent"
    )
    assert not (cache_path / "lockcache" / "runs").exists()


@pytest.mark.slow
def test_the_last_rank_of_a_node_speaks_for_all_of_them(cache_path: Path) -> None:
    program = f"{ONCE}print('up', flush=True); sys.stdin.read()"
    words = ("--dir", str(cache_path), "--most-compiles", "0", "--", sys.executable, "-c", program)
    ranks = [start(*words, SLURM_LOCALID=number) for number in ("0", "1")]
    for rank in ranks:
        assert rank.stdout.readline() == "up\n"
    first, last = ranks
    assert first.communicate(timeout=HANG_SECONDS) == ("", "")
    _, err = last.communicate(timeout=HANG_SECONDS)
    assert (first.returncode, last.returncode) == (0, 3)
    assert err.startswith("lockcache: 2 processes: 1 found, 1 compiled"), err
    assert err.count("\n") == 2
    assert os.listdir(cache_path / "lockcache" / "runs") == []


@pytest.mark.slow
def test_a_job_does_not_count_what_a_killed_job_of_the_same_name_left(cache_path: Path) -> None:
    words = ("--dir", str(cache_path), "--", sys.executable, "-c", f"{ONCE}print('up', flush=True); sys.stdin.read()")
    killed = start(*words, SLURM_LOCALID="0")
    assert killed.stdout.readline() == "up\n"
    killed.kill()
    killed.communicate(timeout=HANG_SECONDS)
    assert len(os.listdir(cache_path / "lockcache" / "runs")) == 1
    again = start(*words, SLURM_LOCALID="0")
    assert again.communicate(timeout=HANG_SECONDS)[1].startswith("lockcache: 1 process: 1 found, 0 compiled;")
    assert os.listdir(cache_path / "lockcache" / "runs") == []


def test_a_later_run_removes_what_a_killed_one_left_a_day_ago(cache_path: Path) -> None:
    said(cache_path, ONCE)
    runs = cache_path / "lockcache" / "runs"
    for name, age in (("old", 100_000), ("new", 0)):
        (runs / name).write_bytes(RUN_HEAD)
        os.utime(runs / name, (time.time() - age,) * 2)
    said(cache_path, ONCE)
    assert os.listdir(runs) == ["new"]


def test_a_run_within_a_run_counts_for_both(cache_path: Path, tmp_path: Path) -> None:
    inner = [sys.executable, "-m", "lockcache", "run", "--dir", str(tmp_path / "inner"), "--", sys.executable, "-c"]
    program = f"import subprocess; subprocess.run({[*inner, ONCE]!r}, check=True)"
    first, second = said(cache_path, program).splitlines()
    assert "1 process: 0 found, 1 compiled" in first
    assert "1 process: 0 found, 1 compiled" in second


@pytest.mark.parametrize("most, code", [("0", 3), ("1", 3), ("2", 0)])
def test_more_compilations_than_asked_for_are_an_exit_code_and_are_named(
    most: str, code: int, cache_path: Path
) -> None:
    program = f"{ONCE}\ncache['l'] = b'other'"
    found = said(cache_path, program, "-q", "--most-compiles", most, code=code)
    assert found.startswith(
        f"--most-compiles: 2 kernels were compiled, more than {most}: scale<float>, " if code else ""
    )
    assert bool(found) == bool(code)
    assert said(cache_path, ONCE, "-q", "--most-compiles", "0") == ""  # a warm one


def test_the_commands_own_exit_code_takes_precedence(cache_path: Path) -> None:
    assert said(cache_path, f"{ONCE}\nsys.exit(7)", "-q", "--most-compiles", "0", code=7) == ""


def test_where_nobody_knows_how_much_was_compiled_the_run_has_not_passed(cache_path: Path, tmp_path: Path) -> None:
    words = ("-q", "--most-compiles", "5")
    assert "no process found or compiled a kernel" in said(cache_path, "", *words, code=3)
    assert "not in use" in said(cache_path, ONCE, *words, code=3, LOCKCACHE_DISABLE="1")
    assert "not in use" in said(cache_path, ONCE, *words, code=3, LOCKCACHE_MAX_SIZE="1Q")
    assert said(cache_path, f"{ONCE}\nsys.exit(7)", *words, code=7, LOCKCACHE_DISABLE="1") == ""
    (tmp_path / "cupy.py").write_text("__version__ = '9.9'")
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    assert "cupy went on with its own cache" in said(
        cache_path, f"import cupy\n{ONCE}", *words, code=3, PYTHONPATH=paths
    )
    removed = f"{ONCE}\nos.unlink(os.environ['LOCKCACHE_RUN'])"
    assert "No such file" in said(cache_path, removed, *words, code=3)


def test_a_process_whose_counts_found_no_room_is_missed(cache_path: Path) -> None:
    said(cache_path, ONCE)
    full = (  # the record has room for its head and the part of the first process
        f"{ONCE}\nimport resource\nif not os.fork():\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))\n"
        "    cache['l'] = b'other'\n    os._exit(0)\nos.wait()"
    )
    found = said(cache_path, full, "--most-compiles", "5", code=3)
    assert found.count("there was no room for all that they counted") == 2, found
    inner = [sys.executable, "-m", "lockcache", "run", "--dir", str(cache_path), "--", sys.executable, "-c"]
    program = f"import subprocess; subprocess.run({[*inner, full]!r}, check=True)"
    assert "no room" in said(cache_path, program, "-q", "--most-compiles", "5", code=3).splitlines()[-1]


def test_what_only_a_frameworks_own_cache_keeps_is_compiled_and_not_stored(cache_path: Path) -> None:
    program = (
        "from lockcache.integrations.adapter import open_shared\n"
        "open_shared('some', '1.2', None, None).note_unshared('it names an object', 'scale')"
    )
    found = said(cache_path, program, "--most-compiles", "0", code=3)
    assert "1 process: 0 found, 1 compiled (1 of them not stored)" in found
    assert "1 kernel was compiled, more than 0: scale, which cannot be shared: it names an object" in found


NVRTC = """
import sys
from cuda.core import ProgramOptions
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
with FileStreamProgramCache() as cache:
    for number in range(2):
        code = f'extern "C" __global__ void scale{number}(float *a) {{ *a *= {number}; }}'
        Program(code, "c++", ProgramOptions(arch="sm_90")).compile("cubin", cache=cache)
"""


@pytest.mark.slow
@pytest.mark.cuda
def test_what_cannot_be_cached_is_compiled_and_not_stored(cache_path: Path, tmp_path: Path) -> None:
    said(cache_path, NVRTC)
    program = (
        f"{NVRTC}\n    options = ProgramOptions(arch='sm_90', time={str(tmp_path / 'times')!r})"
        "\n    Program(code, 'c++', options).compile('cubin', cache=cache)"
    )
    found = said(cache_path, program, "--most-compiles", "0", code=3)
    assert "1 process: 2 found, 1 compiled (1 of them not stored)" in found
    assert "1 kernel was compiled, more than 0: cannot be cached: options.time: " in found
