# SPDX-License-Identifier: Apache-2.0
"""`pip install lockcache` alone, in an empty environment: the daemon keeps a cap, and every command answers."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import venv
import zlib
from pathlib import Path

import pytest

from tests.cli.test_import_jax import write as write_jax
from tests.cli.test_import_triton import GROUPED, write as write_triton

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What a cache in a program needs; at most three small packages more are for the programs.
_LIBRARY = {"filelock", "platformdirs", "psutil", "xxhash"}
_CAP = 1_000_000

_WRITE = """
import sys
from lockcache import Entry, FileStreamProgramCache
with FileStreamProgramCache(sys.argv[1]) as cache:
    for number in range(int(sys.argv[2]), int(sys.argv[3])):
        metadata = {"kind": "cubin", "arch": "sm_90", "label": "gemm", "compile_cost_ns": 10**9}
        cache.put_entry(f"k{number}", Entry(bytes([number % 256]) * 20_000, metadata))
    cache.get("missing")
"""

_HELP = """
import click
from lockcache.cli.program import cli, run
from lockcache_daemon.command import run as run_daemon

def ask(command, words, context):
    assert run([*words, "--help"]) == 0, words
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            ask(command.get_command(context, name), [*words, name], context)

ask(cli, [], click.Context(cli))
assert [run_daemon([*words, "--help"]) for words in ([], ["files"], ["systemd-unit"])] == [0, 0, 0]
"""

# Every command of the catalogue, doing what it is for. In this order: the last ones empty the directory.
_AT_WORK = {
    "stats": "stats {dir}",
    "ls": "ls --sort size {dir}",
    "doctor": "doctor {dir}",
    "policy": "policy set --max-size 1M {dir}",
    "config": "config {dir}",
    "inspect": "inspect {key} {dir}",
    "why": "why --last 5 {dir}",
    "path": "path {dir}",
    "top": "top --once {dir}",
    "verify": "verify --repair {dir}",
    "recount": "recount {dir}",
    "pack": "pack {tmp}/warm.lcb {dir}",
    "unpack": "unpack {tmp}/warm.lcb {tmp}/unpacked",
    "bundle": "bundle make -o {tmp}/kernels.lcb {dir}",
    "promote": "promote {dir} {tmp}/kernels.lcb",
    "pin": "pin {key} --dir {dir}",
    "unpin": "unpin {key} --dir {dir}",
    "manifest": "manifest make -o {tmp}/job.keys {dir}",
    "env": "env triton --dir {dir}",
    "key": "key new {tmp}/signing.key",
    "completion": "completion bash",
    "import-jax": "import-jax --jax-version 0.10.2 {tmp}/jax {tmp}/imported",
    "import-triton": "import-triton {tmp}/triton {tmp}/imported",
    "run": "run --daemon --max-size 1M --dir {tmp}/run -- true",
    "rm": "rm --dir {dir} {key}",
    "evict": "evict --to 100k --yes {dir}",
    "clear": "clear --yes {dir}",
}

# Of a compiler's keys, which need one, no miss was reported.
_CODES = {"why": 1}


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment in which nothing but the wheel was installed."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    venv.create(folder)
    subprocess.run([*_pip_of(folder / "bin"), "install", "--quiet", wheel], check=True, capture_output=True)
    return folder / "bin"


def _pip_of(programs: Path) -> list[object]:
    """Returns the command of this environment's pip for another one: to make a pip there takes seconds."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python"]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Variables of somebody who set none for Python or lockcache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOCKCACHE", "XDG"))}
    return {**kept, "HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "100"}


def _answer(command: list[object], home: dict[str, str], code: int = 0) -> str:
    words = [*map(str, command)]
    ended = subprocess.run(words, env=home, cwd=home["HOME"], capture_output=True, text=True, check=False, timeout=100)
    assert "Traceback" not in ended.stderr, ended
    assert ended.returncode == code, ended
    return ended.stdout if code == 0 else ended.stderr


def _answer_on_terminal(command: list[object], home: dict[str, str]) -> tuple[int, str]:
    """Returns the exit code, and what stands on a terminal that is stdout and stderr."""
    ours, theirs = pty.openpty()
    words = [*map(str, command)]
    with subprocess.Popen(words, env=home, cwd=home["HOME"], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # a terminal raises this when its other end is closed
            while part := os.read(ours, 1 << 16):
                said += part
    os.close(ours)
    return process.returncode, said.decode()


def _fill(programs: Path, home: dict[str, str], directory: Path, first: int, end: int) -> None:
    _answer([programs / "python", "-c", _WRITE, directory, first, end], home)


def test_it_brings_what_the_programs_need_and_no_more(programs: Path, wheel: Path, home: dict[str, str]) -> None:
    found = json.loads(_answer([*_pip_of(programs), "list", "--format", "json"], home))
    names = {each["name"].lower() for each in found} - {"lockcache"}
    assert names >= _LIBRARY
    assert len(names - _LIBRARY) <= 3
    assert names - _LIBRARY <= {"click", "tomli"}
    assert wheel.stat().st_size < 2_500_000


def test_the_daemon_brings_a_directory_under_the_cap_and_keeps_it(
    programs: Path, home: dict[str, str], tmp_path: Path
) -> None:
    directory = tmp_path / "kernels"
    _fill(programs, home, directory, 0, 150)
    before = json.loads(_answer([programs / "lockcache", "stats", "--json", directory], home))
    assert before["bytes"] > 2 * _CAP
    command = [programs / "lockcache-daemon", "--max-size", str(_CAP) + "B", "--interval", "50ms", "--json", directory]
    with subprocess.Popen(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        events = (json.loads(line) for line in daemon.stdout)
        try:
            next(event for event in events if event["event"] == "sweep")
            while (stats := _stats(programs, home, directory))["bytes"] > _CAP:
                assert daemon.poll() is None
            assert str(daemon.pid) in json.dumps(stats["daemon"])
            _fill(programs, home, directory, 150, 300)
            assert _stats(programs, home, directory)["bytes"] <= _CAP
        finally:
            daemon.terminate()
        assert (daemon.wait(60), daemon.stderr.read()) == (0, "")
    assert _stats(programs, home, directory)["daemon"] is None


def _stats(programs: Path, home: dict[str, str], directory: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(_answer([programs / "lockcache", "stats", "--json", directory], home))
    return found


def test_one_pass_by_a_file_of_settings(programs: Path, home: dict[str, str], tmp_path: Path) -> None:
    _fill(programs, home, tmp_path / "kernels", 0, 100)
    config = tmp_path / "daemon.toml"
    config.write_text(f'max_size = "1M"\n[[directory]]\npath = "{tmp_path}/kernels"\nlow_watermark = "50%"\n')
    _answer([programs / "lockcache-daemon", "--once", "--config", config], home)
    assert _stats(programs, home, tmp_path / "kernels")["bytes"] <= _CAP  # type: ignore[operator]
    config.write_text('max_size = "much"\ncolour = 1\n')
    said = _answer([programs / "lockcache-daemon", "--once", "--config", config], home, code=2)
    assert sorted(re.findall(r"daemon\.toml:(\d): (\w+): ", said)) == [("1", "max_size"), ("2", "colour")]


def test_every_command_says_how_it_is_used(programs: Path, home: dict[str, str]) -> None:
    said = _answer([programs / "python", "-c", _HELP], home)
    assert said.count("Usage: lockcache ") > 24


@pytest.mark.long
@pytest.mark.parametrize("place", ["terminal", "pipe"])
def test_every_command_does_its_work(place: str, programs: Path, home: dict[str, str], tmp_path: Path) -> None:
    catalogue = _answer([programs / "python", "-c", "from lockcache.cli.program import *; print(*COMMANDS)"], home)
    assert set(_AT_WORK) == set(catalogue.split())
    write_jax(tmp_path / "jax", "jit_f", zlib.compress(b"program"))
    write_triton(tmp_path / "triton", GROUPED)
    for folder in (tmp_path / "triton", tmp_path / "triton" / GROUPED):
        folder.chmod(0o700)
    _fill(programs, home, tmp_path / "kernels", 0, 40)
    for command, words in _AT_WORK.items():
        line = [programs / "lockcache", *words.format(dir=tmp_path / "kernels", tmp=tmp_path, key="k39").split()]
        if place == "pipe":
            _answer(line, home, _CODES.get(command, 0))
        else:
            code, said = _answer_on_terminal(line, home)
            assert (code, "Traceback" in said) == (_CODES.get(command, 0), False), f"{line}: {said}"


def test_what_needs_an_extra_is_one_line_that_says_how_to_get_it(
    programs: Path, home: dict[str, str], tmp_path: Path
) -> None:
    _fill(programs, home, tmp_path / "kernels", 0, 2)
    for extra, words in {
        "cli": ["lockcache", "pack", tmp_path / "warm.lcb.zst", tmp_path / "kernels"],
        "daemon": ["lockcache-daemon", "--metrics", "127.0.0.1:0", "--max-size", "1M", tmp_path / "kernels"],
    }.items():
        said = _answer([programs / words[0], *words[1:]], home, code=2)
        assert said.count("\n") == 1
        assert re.search(rf"pip install 'lockcache\[{extra}\] @ file:", said), said
    said = _answer([programs / "lockcache-stress", "same-key"], home, code=2)
    assert re.fullmatch(r"lockcache-stress: needs rich(\.\w+)?: pip install 'lockcache\[cli\] @ file:.*'\n", said)
