# SPDX-License-Identifier: Apache-2.0
"""Builds of torch's extensions on lockcache, in the place of the functions of torch that have ninja build them.

Keeps invariant 5 (death is free): no file ``lock`` is left. Keeps invariant 7 (never take the job down): what has no
key, torch builds as without lockcache.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from lockcache.integrations.cpp_extension.baton import Baton, Lock
from lockcache.integrations.cpp_extension.libraries import BUILD_FILE, Libraries, read_whole
from lockcache.integrations.staged import write_whole

__all__ = ["Builds"]

_Lock = TypeVar("_Lock", Baton, Lock)


class Builds:
    """What stands in the place of torch's functions. Each thread loads one extension at a time."""

    def __init__(self, libraries: Libraries, own_run: Callable[[str, bool, str], Any]) -> None:
        self._libraries, self._own_run = libraries, own_run
        self._thread = threading.local()

    def baton(self, path: str, *args: Any, **options: Any) -> Baton:
        """``FileBaton``."""
        return self._begin(Baton(path, *args, **options))

    def lock(self, own: Callable[..., Any]) -> Callable[..., Lock]:
        """``FileLock``, of which ``own`` is torch's, that torch has from 2.14 on in the place of ``FileBaton``."""
        return lambda *args, **options: self._begin(Lock(own(*args, **options)))

    def _begin(self, baton: _Lock) -> _Lock:
        self._thread.text, self._thread.baton = None, baton
        return baton

    def write(self, path: str, text: str) -> None:
        """``_maybe_write``: have a file that others may be reading, or writing as well, and leave it if it is right."""
        if os.path.basename(path) == BUILD_FILE:
            self._thread.text = text
        content = text.encode()
        if read_whole(path) != content and not write_whole(path, content, "torch", 0o666):
            with open(path, "wb") as file:  # whose error is the program's
                file.write(content)

    def precompile_later(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """``own``, which precompiles a header of torch's, when something is built with it. It takes half a minute."""

        def call(*args: Any, **options: Any) -> None:
            self._thread.precompile = lambda: own(*args, **options)

        return call

    def run(self, build_directory: str, verbose: bool, error_prefix: str) -> None:
        """``_run_ninja_build``: have the library in its folder."""
        baton, text = getattr(self._thread, "baton", None), getattr(self._thread, "text", None)
        if baton is None or baton.is_over or text is None:  # a build of setup.py
            self._own_run(build_directory, verbose, error_prefix)
            return

        def build(staged: str) -> None:
            self._precompile()
            self._own_run(staged, verbose, error_prefix)

        if not self._libraries.have(build_directory, text, build):
            self._run_own(build_directory, text, verbose, error_prefix)

    def _run_own(self, folder: str, text: str, verbose: bool, error_prefix: str) -> None:
        """Have torch build as without lockcache; another process may have written its own file since."""
        self._precompile()
        self._thread.baton.hold()
        self.write(os.path.join(folder, BUILD_FILE), text)
        self._own_run(folder, verbose, error_prefix)

    def _precompile(self) -> None:
        precompile, self._thread.precompile = getattr(self._thread, "precompile", None), None
        if precompile is not None:
            precompile()
