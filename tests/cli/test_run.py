# SPDX-License-Identifier: Apache-2.0
"""``lockcache run`` and ``lockcache env``: a command's frameworks on lockcache, its signals and its exit code."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.cli.command import KEPT, LOCKCACHE, ROOT, RUN, run, start, until_free
from tests.matrix_sampling import EXHAUSTIVE
from tests.state_pages import policy_of

# A framework, as one is on disk: what it imports last is there when its adapter is installed.
FRAMEWORK = "import sys\nis_whole = False\nfrom cupy import inner\nis_whole = True\n"


def finish(*words: str, **variables: str) -> tuple[int, str, str]:
    process = start(*words, **variables)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.slow
def test_the_command_has_the_variables_and_its_exit_code_comes_back(cache_path: Path) -> None:
    program = (
        "import os, sys; from lockcache import FileStreamProgramCache as C\n"
        "with C() as cache: cache.begin('k').store(b'code', 2_500_000_000); cache.get('k')\n"
        "print(os.environ['LOCKCACHE_JAX'], cache.path, cache.max_size_bytes); sys.exit(7)"
    )
    code, out, err = finish("--dir", str(cache_path), "--max-size", "1G", "--", sys.executable, "-c", program)
    assert (code, out.split()) == (7, ["1", str(cache_path), "1000000000"])
    assert err.strip() == f"lockcache: 1 process: 0 found, 1 compiled; in {cache_path}"


@pytest.mark.slow
def test_whoever_makes_the_directory_for_a_seed_asks_no_server(tmp_path: Path) -> None:
    """Its threads would take signals that are meant for the command: this one never answers."""
    manifest, look_up = tmp_path / "manifest", "from lockcache import FileStreamProgramCache as C; C().get('k')"
    finish("--dir", str(tmp_path / "a"), "--manifest", str(manifest), "--", sys.executable, "-c", look_up)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        words = ["-q", "--dir", str(tmp_path / "b"), "--seed", str(tmp_path / "no.lcb"), "--promote", "--"]
        variables = {"LOCKCACHE_REMOTE": url, "LOCKCACHE_MANIFEST": str(manifest)}
        assert finish(*words, "sh", "-c", "ls /proc/$PPID/task | wc -l", **variables)[:2] == (0, "1\n")


@pytest.mark.slow
def test_variables_that_are_set_count_and_the_last_rank_speaks(cache_path: Path) -> None:
    least = "JAX_PERSISTENT_CACHE_MIN_"
    names = [f"{least}COMPILE_TIME_SECS", f"{least}ENTRY_SIZE_BYTES"]
    program = f"import os; print(*map(os.environ.get, {names}))"
    variables = {names[0]: "5", "SLURM_LOCALID": "3", "LOCKCACHE_DIR": str(cache_path)}
    code, out, err = finish("--", sys.executable, "-c", program, **variables)
    assert (code, out, err.count("\n")) == (0, "5 0\n", 1)  # the last rank speaks, which the only one is


@pytest.mark.slow
def test_an_adapter_is_installed_when_its_framework_has_been_imported(tmp_path: Path) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text(FRAMEWORK)
    (tmp_path / "cupy" / "inner.py").touch()
    adapter = tmp_path / "adapter.py"
    adapter.write_text(
        "import importlib, lockcache.integrations.cupy as adapter\n"
        "adapter.install = lambda: print('installed', importlib.import_module('cupy').is_whole)\n"
        "print('before'); import cupy; print('after')\n"
    )
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif 'LOCKCACHE_INSTALL' in os.environ: print('the own one')\n"
    )
    variables = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "LOCKCACHE_DIR": str(tmp_path / "cache")}
    code, out, _ = finish("-q", "--", sys.executable, str(adapter), **variables)
    assert (code, out.split("\n")) == (0, ["the own one", "before", "installed True", "after", ""])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGRTMIN])
def test_a_signal_goes_to_the_command(number: signal.Signals, tmp_path: Path) -> None:
    # Not by a handler in Python: a signal just before the wait for one would not end that.
    program = (
        f"import signal; numbers = {{{number.value}}}; signal.pthread_sigmask(signal.SIG_BLOCK, numbers); "
        "print('up', flush=True); signal.sigwait(numbers); exit(9)"
    )
    process = start("-q", "--dir", str(tmp_path / "cache"), "--", sys.executable, "-c", program)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 9


_ALARM = """
import os, signal
from lockcache.cli.running.child import WAITED_FOR, end_as, run_child
from lockcache.cli.signals import held_back
with held_back(WAITED_FOR) as mask:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    print(end_as(run_child(("sleep", "60"), os.environ, mask)))
"""


@pytest.mark.slow
def test_an_alarm_that_was_set_before_ends_the_command() -> None:
    """As of ``perl -e 'alarm 60; exec @ARGV' lockcache run ...``: in the command's place it would end that."""
    ended = subprocess.run([sys.executable, "-c", _ALARM], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == (f"{128 + signal.SIGALRM}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_a_signal_kills_ends_as_a_shell_says_it(number: signal.Signals, tmp_path: Path) -> None:
    code, _, _ = finish("-q", "--dir", str(tmp_path / "cache"), "--", "sh", "-c", f"kill -{number.value} $$")
    assert code == (128 + number if number is not signal.SIGINT else -number)


def test_a_last_line_that_cannot_be_written_does_not_change_the_exit_code(tmp_path: Path) -> None:
    command = [LOCKCACHE, "run", "--dir", str(tmp_path / "cache"), "--", "sh", "-c", "exit 7"]
    with open("/dev/full", "wb") as full:
        assert subprocess.run(command, stderr=full, check=False).returncode == 7
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        assert subprocess.run(command, stderr=write_end, check=False).returncode == 7
    finally:
        os.close(write_end)


def test_a_command_that_is_not_there_is_said_as_a_shell_does(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for word, code, said in (("no-such", 127, "No such file"), (str(tmp_path / "file"), 126, "Permission denied")):
        ended = run("run", "--dir", str(tmp_path / "cache"), "--", word)
        assert (ended.returncode, said in ended.stderr) == (code, True), ended


def test_a_mistake_in_the_options_is_not_taken_for_the_command(tmp_path: Path) -> None:
    ended = run("run", "--dir", "/dev/null", "--", "true")
    assert (ended.returncode, ended.stderr) == (2, "lockcache: /dev/null: this is not a cache directory\n")
    assert run("run", "-q", "--dir", str(tmp_path), "sh", "-c", "exit 3").returncode == 3


def test_env_prints_what_a_shell_takes(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    lines = run("env", "jax", "--dir", str(directory), "--max-size", "10G").stdout.splitlines()
    assert lines[0] == f"export LOCKCACHE_DIR={shlex.quote(str(directory))}"
    assert "export LOCKCACHE_JAX=1" in lines
    found = json.loads(run("env", "cupy", "--json", LOCKCACHE_DIR=str(directory)).stdout)
    assert found == {"LOCKCACHE_DIR": str(directory)}
    found = json.loads(run("env", "triton", "--json", LOCKCACHE_DIR=str(directory)).stdout)
    assert found["TRITON_CACHE_MANAGER"] == "lockcache.integrations.triton:LockcacheManager"
    named = run("env", "cutile", "jax").stderr
    assert "cutile needs lockcache.integrations.cutile.install() in the program" in named
    assert "jax" not in named
    refused = run("env", "torch")
    assert (refused.returncode, "cupy" in refused.stderr, "jax" in refused.stderr) == (2, True, True)
    assert run("env", "jax", "--max-size", "10").returncode == 2
    assert not directory.exists()


def test_a_command_has_no_variable_with_which_triton_would_raise_without_lockcache(cache_path: Path) -> None:
    _, out, _ = finish("-q", "--dir", str(cache_path), "--", "env", TRITON_CACHE_MANAGER="")
    assert "LockcacheManager" not in out
    assert "LOCKCACHE_INSTALL=" in out
    assert "triton" in out.partition("LOCKCACHE_INSTALL=")[2].splitlines()[0].split(",")


@pytest.mark.slow
def test_a_framework_that_is_looked_for_first_is_adapted_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text(
        "import sys\nif 'broken' in sys.argv: sys.argv.remove('broken'); raise ImportError\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import importlib.util, lockcache.integrations.cupy as adapter\n"
        "adapter.install = lambda: print('installed')\n"
        "assert importlib.util.find_spec('cupy')\n"
        "try: import cupy\nexcept ImportError: print('again'); import cupy\n"
    )
    variables = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "LOCKCACHE_DIR": str(tmp_path / "cache")}
    assert finish("-q", "--", sys.executable, str(program), **variables)[1] == "installed\n"
    assert finish("-q", "--", sys.executable, str(program), "broken", **variables)[1] == "again\ninstalled\n"


@pytest.mark.slow
def test_an_empty_entry_of_pythonpath_stays_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "program.py").write_text("import mine; print('found')")
    variables = {"PYTHONPATH": f"{os.pathsep}{ROOT}", "LOCKCACHE_DIR": str(tmp_path / "cache")}
    assert finish("-q", "--", sys.executable, "scripts/program.py", **variables)[1] == "found\n"


@pytest.mark.slow
def test_the_command_has_the_signals_that_programs_rely_on(tmp_path: Path) -> None:
    ignore = (
        "import signal, os, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    quietly = [*RUN, "-q", "--dir", str(tmp_path / "c"), "--"]
    command = [sys.executable, "-c", ignore, *quietly, "cat", "/proc/self/status"]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
    )
    ignored = int(ended.stdout.partition("SigIgn:")[2].split()[0], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))
    assert ended.returncode == 0


def test_a_script_that_does_not_say_what_runs_it_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('exit "$1"\n')
    script.chmod(0o755)
    assert run("run", "-q", "--dir", str(tmp_path / "cache"), "--", str(script), "7").returncode == 7


@pytest.mark.slow
def test_a_terminal_that_goes_ends_the_command(tmp_path: Path) -> None:
    program = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    pid, terminal = pty.fork()
    if not pid:
        os.environ["PYTHONPATH"] = str(ROOT)
        quietly = [*RUN, "-q", "--dir", str(tmp_path / "c"), "--"]
        os.execv(sys.executable, [*quietly, sys.executable, "-c", program])
    with os.fdopen(terminal, "rb", 0) as ours:
        command = int(ours.readline())
        handle = os.pidfd_open(command)
    try:
        assert select.select([handle], [], [], 60)[0], "it lives on"
    finally:
        os.close(handle)
        os.waitpid(pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, signal.SIGKILL])
def test_a_daemon_runs_for_as_long_as_the_command_and_dies_with_what_started_it(number, cache_path: Path) -> None:
    program = (sys.executable, "-c", KEPT, str(cache_path))
    process = start("--daemon", "--dir", str(cache_path), "--max-size", "1G", "--", *program)
    assert "pid" in process.stdout.readline()
    if number is None:
        assert process.communicate(timeout=60)[1].startswith("lockcache: nothing was found or compiled here, ")
        assert process.returncode == 0
    else:
        process.kill()
        process.communicate(timeout=60)
    until_free(cache_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, variables",
    [
        pytest.param(["--max-size", "1G"], {}, id="option"),
        pytest.param([], {"LOCKCACHE_MAX_SIZE": "1G"}, id="variable", marks=EXHAUSTIVE),
    ],
)
def test_the_cap_of_a_run_with_a_daemon_binds_no_later_program(
    words: list[str], variables: dict[str, str], cache_path: Path
) -> None:
    program = (sys.executable, "-c", KEPT, str(cache_path))
    process = start("--daemon", "--dir", str(cache_path), *words, "--", *program, **variables)
    assert "pid" in process.stdout.readline()
    assert process.communicate(timeout=60)[1].startswith("lockcache: nothing was found or compiled here, ")
    policy = policy_of(cache_path)
    assert (policy.max_size_bytes, policy.by_operator) == (1_000_000_000, False)
    with FileStreamProgramCache(cache_path, max_size_bytes=2_000_000_000) as cache:
        assert cache.max_size_bytes == 2_000_000_000


@pytest.mark.slow
def test_a_daemon_keeps_the_cap_that_an_operator_set_and_runs_nothing_of_where_it_is_started(
    cache_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    for module in ("ctypes.py", "tomllib.py", "tomli.py"):
        (tmp_path / "here" / module).write_text("raise SystemExit(3)")
    assert run("policy", "set", "--max-size", "50M", cache_path).returncode == 2  # there is nothing yet
    with FileStreamProgramCache(cache_path):
        assert run("policy", "set", "--max-size", "50M", cache_path).returncode == 0
    program = (sys.executable, "-c", KEPT, str(cache_path))
    words = ("--daemon", "--dir", str(cache_path), "--max-size", "1M", "--")
    process = start(*words, *program, cwd=tmp_path / "here")
    assert "pid" in process.stdout.readline()
    process.communicate(timeout=60)
    assert policy_of(cache_path).max_size_bytes == 50_000_000
