# SPDX-License-Identifier: Apache-2.0
"""Runs a console script in a forked process, which has imported everything already.

To start Python and import a program takes ten times as long as most calls in these tests. A forked program has
descriptors, environment, signals and an exit code of its own, like a started one; only what Python does at exit
differs. Tests with real starts cover the start of the scripts, and their messages if an import fails.
"""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import multiprocessing
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from types import ModuleType
from typing import Any, Final

import lockcache
import lockcache_daemon
from lockcache.filestream.disk import space

#: The function by which directories count for programs; in this process tests replace it (``tests/conftest.py``).
SPACE_ON: Final = space._space_on

_FORK = multiprocessing.get_context("fork")


@functools.cache
def import_all(*more: ModuleType) -> None:
    """Import everything that a forked child may need: the library, the daemon, and ``more`` packages."""
    for package in (lockcache, lockcache_daemon, *more):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("__main__", ".cuda")):
                importlib.import_module(module.name)
    # Modules that programs import late.
    for name in ("grp", "psutil", "concurrent.futures.thread", "rich.console", "rich.table", "encodings.idna",
                 "linecache", "resource"):  # fmt: skip
        importlib.import_module(name)


class ForkedProgram(subprocess.Popen[str]):
    """Runs ``main`` in a forked process, with the options of :class:`subprocess.Popen`; the first word is its name."""

    def __init__(self, main: Callable[[], object], words: Sequence[object], **options: Any) -> None:
        import_all()
        self._main = main
        super().__init__([*map(str, words)], **options)

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *more: Any
    ) -> None:
        """Fork in place of fork and exec."""
        pipes = more[3:9]  # behind startupinfo, creationflags, shell: both ends of stdin, stdout, stderr
        streams = [number if fd < 0 else fd for number, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
        process = _FORK.Process(target=_be, args=(self._main, args, streams, env, cwd))
        process.start()
        multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]  # waited for here alone
        assert process.pid is not None
        self.pid = process.pid
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the event: the original looks again and again."""
        if timeout is not None and self.poll() is None:
            process = os.pidfd_open(self.pid)
            try:
                if not select.select([process], [], [], timeout)[0]:
                    raise TimeoutExpired(self.args, timeout)
            finally:
                os.close(process)
        return super().wait()


def run_forked(
    main: Callable[[], object], *words: object, stdin: str = "", timeout: float = 60, **where: Any
) -> CompletedProcess[str]:
    """Run ``main`` to its end, like :func:`subprocess.run` runs a script. ``where`` has its ``env`` and ``cwd``."""
    streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.pwrite(streams[0], stdin.encode(), 0)
        process = ForkedProgram(main, words, stdin=streams[0], stdout=streams[1], stderr=streams[2], **where)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        out, err = (os.pread(fd, os.fstat(fd).st_size, 0).decode() for fd in streams[1:])
        return CompletedProcess(process.args, code, out, err)
    finally:
        for fd in streams:
            os.close(fd)


def _be(
    main: Callable[[], object],
    words: list[str],
    streams: Sequence[int],
    env: Mapping[str, str] | None,
    cwd: Path | None,
) -> None:
    """Become the program, in the child: drop what the test has and a started process has not."""
    # Garbage of the test is not collected here: it would close descriptors that are closed below, with words on stderr.
    gc.freeze()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.argv = words
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    encoding = os.environ.get("PYTHONIOENCODING")
    sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding, "backslashreplace", closefd=False)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    tempfile.tempdir = None  # so that TMPDIR is read again
    logging.root.handlers.clear()
    # Others' handlers, of a test or of a command that ran in its process, keep lockcache's own from writing.
    own = logging.getLogger("lockcache").handlers
    own[:] = [each for each in own if type(each).__module__ == "lockcache.arguments"]
    warnings.simplefilter("ignore")
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    space._space_on = SPACE_ON
    # The helpers of the test are not children of this process, and their descriptors were closed above.
    for helper in (resource_tracker._resource_tracker, forkserver._forkserver):
        type(helper).__init__(helper)
    main()
