# SPDX-License-Identifier: Apache-2.0
"""ccache and sccache next to lockcache on one Valkey, where all three do the same: compile a C file once and keep it.

ccache and sccache are commands that wrap a C compiler and know nothing of NVRTC, so lockcache caches the output of the
same compiler here. Two numbers are compared: the time of a command that hits on the server from an empty directory, and
how often the compiler runs when several hosts want one new file at once. Times depend on this machine and are not
judged.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lockcache import RemoteProgramCache
from lockcache_stress.errors import UnusableError
from lockcache_stress.run import Check, Show, Tabled, equal
from lockcache_stress.servers import Valkey, free_port

__all__ = ["run_peers"]

_HOSTS: Final = 8
_COMMANDS: Final = 9
_CALLS: Final = 200
# So many functions make an object file of some 16 KiB in half a second.
_FUNCTIONS: Final = 120
_FUNCTION: Final = """
int f%d(const int *v, int n) {
  int s = %d;
  for (int i = 0; i < n; ++i) { s ^= s << 5; s += v[i] * %d; if (s > %d) s -= v[n - i - 1]; }
  return s;
}
"""
# Counts compilations, and no other calls of the compiler by a cache. $COUNTED_CC names the compiler, $COUNTED the file.
_COMPILER: Final = """#!/bin/sh
case " $* " in *" -E "*|*" --version "*|*" -v "*) ;; *" -c "*) echo $$ >> "$COUNTED";; esac
exec cc "$@"
"""
_LOCKCACHE: Final = """
import os, subprocess, sys
from lockcache import FileStreamProgramCache
source, target, directory = sys.argv[1:]
def compute():
    subprocess.run([os.environ["COUNTED_CC"], "-O2", "-c", source, "-o", target], check=True)
    with open(target, "rb") as file:
        return file.read()
with open(source, "rb") as file, FileStreamProgramCache(directory) as cache:
    code = cache.get_or_compute(file.read(), compute)
with open(target, "wb") as file:
    file.write(code)
"""

#: A way to compile: makes a command and its variables from a source, an object file and a host's directory.
_Way = Callable[[str, str, str], tuple[list[str], dict[str, str]]]


class _Trial:
    """A folder, one server, and the commands that use the server."""

    def __init__(self, folder: Path, server: Valkey) -> None:
        self._folder, self._server = folder, server
        compiler = folder / "counted-cc"
        compiler.write_text(_COMPILER)
        compiler.chmod(0o700)
        self._counted = folder / "counted"
        self.variables = {"COUNTED": str(self._counted), "COUNTED_CC": str(compiler)}
        self.compiler, self._made = str(compiler), 0

    def source(self) -> str:
        """Returns a new source file, which no host has compiled."""
        self._made += 1
        path = self._folder / f"unit{self._made}.c"
        numbers = range(_FUNCTIONS)
        path.write_text("".join(_FUNCTION % (n, n + self._made, n + 3, 1000 + n) for n in numbers))
        return str(path)

    def host(self) -> str:
        """Returns the empty directory of a new host."""
        self._made += 1
        return str(self._folder / f"host{self._made}")

    def ccache(self, source: str, target: str, directory: str) -> tuple[list[str], dict[str, str]]:
        storage = {"CCACHE_DIR": directory, "CCACHE_REMOTE_STORAGE": self._server.url, "CCACHE_COMPILERTYPE": "gcc"}
        return ["ccache", self.compiler, "-O2", "-c", source, "-o", target], storage

    def lockcache(self, source: str, target: str, directory: str) -> tuple[list[str], dict[str, str]]:
        words = [sys.executable, "-c", _LOCKCACHE, source, target, directory]
        return words, {"LOCKCACHE_REMOTE": self._server.url}

    def plain(self, source: str, target: str, directory: str) -> tuple[list[str], dict[str, str]]:
        return [self.compiler, "-O2", "-c", source, "-o", target], {}

    def python(self, source: str, target: str, directory: str) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-c", "import redis, lockcache.composition.cache"], {}

    def started(self, way: _Way, source: str) -> subprocess.Popen[bytes]:
        """Start the command on a new host."""
        directory = self.host()
        words, variables = way(source, f"{directory}.o", directory)
        return subprocess.Popen(words, env={**os.environ, **self.variables, **variables})

    def cold(self, way: _Way) -> int:
        """Returns the number of runs of the compiler when all hosts want one new file at once."""
        self._counted.write_text("")
        source = self.source()
        running = [self.started(way, source) for _ in range(_HOSTS)]
        if sum(each.wait() != 0 for each in running):  # not any(), which would not wait for all of them
            raise UnusableError("a command failed; what it said is above")
        return len(self._counted.read_text().splitlines())

    def warm_seconds(self, way: _Way) -> float:
        """Returns the shortest time of a new host's command for a file that the server has."""
        source, took = self.source(), []
        for _ in range(_COMMANDS + 1):
            began = time.monotonic()
            if self.started(way, source).wait():
                raise UnusableError("a command failed; what it said is above")
            took.append(time.monotonic() - began)
        return min(took[1:])


def run_peers(folder: Path, seed: int, show: Show) -> Tabled:
    """Measure all three. Raises :class:`UnusableError` where there is no Valkey, or no C compiler."""
    if shutil.which("cc") is None:
        raise UnusableError("no C compiler here")
    server = Valkey(folder)
    try:
        trial = _Trial(folder, server)
        show("peers", 0.0, "lockcache")
        ways: dict[str, _Way] = {"lockcache": trial.lockcache, "no cache": trial.plain}
        if shutil.which("ccache"):
            ways["ccache"] = trial.ccache
        cold = {name: trial.cold(way) for name, way in ways.items()}
        show("peers", 0.5, "hits")
        ways["python, which only imports"] = trial.python
        warm = {name: trial.warm_seconds(way) for name, way in ways.items()}
        call = _call_seconds(server)
        refusal = _why_no_sccache(trial, server)
    finally:
        server.kill()
    return _tabulate(cold, warm, call, refusal, seed)


def _tabulate(cold: Mapping[str, int], warm: Mapping[str, float], call: float, refusal: str, seed: int) -> Tabled:
    lines = [equal(f"lockcache: compilations, {_HOSTS} hosts, one new file", cold["lockcache"], 1)]
    lines += [Check(f"{name}: the same", f"{count}") for name, count in cold.items() if name != "lockcache"]
    lines += [Check(f"{name}: command, empty host", f"{seconds * 1e3:.0f} ms") for name, seconds in warm.items()]
    lines.append(Check("lockcache: a lookup on the server, in a process", f"{call * 1e3:.2f} ms"))
    lines += [] if "ccache" in cold else [Check("ccache", "not run: not installed (Debian: ccache)")]
    lines.append(Check("sccache", refusal))
    numbers = {"compilations": cold, "command_seconds": warm, "call_seconds": call, "sccache": refusal, "seed": seed}
    return Tabled("peers", "peers: one Valkey, a C file of 16 KiB when it is compiled", lines, numbers, ["-"])


def _call_seconds(server: Valkey) -> float:
    took = []
    with RemoteProgramCache(server.url) as cache:
        cache["call"] = os.urandom(16 * 1024)
        cache.flush()
        for _ in range(_CALLS):
            began = time.monotonic()
            found = cache.get("call")
            took.append(time.monotonic() - began)
            if found is None:
                raise UnusableError("the server did not answer")
    return statistics.median(took)


def _why_no_sccache(trial: _Trial, server: Valkey) -> str:
    """Returns why sccache is not measured: it is not installed, it reports an error, or each host needs its server."""
    if shutil.which("sccache") is None:
        return "not run: not installed (Debian: sccache)"
    variables = {
        "SCCACHE_REDIS": f"{server.url}/0", "SCCACHE_SERVER_PORT": str(free_port()), "SCCACHE_NO_DAEMON": "1",
        "SCCACHE_START_SERVER": "1", "SCCACHE_IDLE_TIMEOUT": "5",
    }  # fmt: skip
    try:
        ran = subprocess.run(
            ["sccache"], env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=30
        )
    except subprocess.TimeoutExpired:
        return "not run: a server of its own for each host, which is not measured here"
    said = ran.stderr.strip().splitlines()
    return f"not run: {said[-1] if said else 'it says nothing'}"
