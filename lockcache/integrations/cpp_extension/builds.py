"""Builds of torch's extensions on lockcache: looked up in the place of ninja, and made by ninja where they are missing.

By turns, so that one process builds each. It is built in a folder of its own, from nothing, because ninja believes the
times of what an earlier build left, and an entry is for others too; the library appears in the extension's folder by
one rename. Keeps invariant 5 (death is free): a build folder has its owner's name, and goes with the next build, and no
file ``lock`` is left. Keeps invariant 7 (never take the job down): what has no key, torch builds as without lockcache.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from lockcache.errors import UncacheableError
from lockcache.integrations.adapter import Shared
from lockcache.integrations.cpp_extension.baton import Baton
from lockcache.integrations.cpp_extension.keys import Torch, parts_of
from lockcache.integrations.cpp_extension.recipe import Recipe, read_recipe
from lockcache.integrations.framework_keys import UnkeyableError, key_of, read_file
from lockcache.integrations.key_parts import parts_of_extension
from lockcache.integrations.staged import reap_folder, staged_name, write_whole
from lockcache.single_flight import Turn

__all__ = ["Builds"]

_log = logging.getLogger("lockcache")

_FILE: Final = "build.ninja"
# The library's name is the program's, and may be longer than that of a file in an entry.
_NAME: Final = "library"
# Older than any source: ninja links again what it did not link itself, and never takes it for what it would make.
_OLD_NS: Final = 1_000_000_000
_MOST_TEXT_BYTES: Final = 1 << 24


class Builds:
    """What stands in the place of torch's functions. Each thread loads one extension at a time."""

    def __init__(self, shared: Shared, torch: Torch, own_run: Callable[[str, bool, str], Any]) -> None:
        self._shared, self._torch, self._own_run = shared, torch, own_run
        self._thread = threading.local()

    def baton(self, path: str, *args: Any, **options: Any) -> Baton:
        """``FileBaton``."""
        baton = Baton(path, *args, **options)
        self._thread.text, self._thread.baton = None, baton
        return baton

    def write(self, path: str, text: str) -> None:
        """``_maybe_write``: have a file that others may be reading, or writing as well, and leave it if it is right."""
        if os.path.basename(path) == _FILE:
            self._thread.text = text
        content = text.encode()
        if _read(path) != content and not write_whole(path, content, "torch", 0o666):
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
        recipe, parts = self._describe(text, build_directory)
        if recipe is None or parts is None:
            self._run_own(build_directory, text, verbose, error_prefix)
            return
        key = f"extension/{key_of(parts)}"
        label = os.path.splitext(recipe.target)[0]
        found = self._shared.begin_files(key, label, lambda: parts_of_extension(parts))
        target = os.path.join(build_directory, recipe.target)
        if isinstance(found, dict):
            if not (_NAME in found and _place(target, found[_NAME])):
                self._run_own(build_directory, text, verbose, error_prefix)
            return
        with found if isinstance(found, Turn) else contextlib.nullcontext() as turn:
            began_ns, before = time.perf_counter_ns(), _stamps(recipe)
            is_placed, content = self._build(target, text, verbose, error_prefix)
            cost_ns = time.perf_counter_ns() - began_ns
            # Not if a source or a header was changed meanwhile.
            if content and _stamps(recipe) == before and self._describe(text, build_directory)[1] == parts:
                self._shared.store_files(key, {_NAME: content}, turn, compile_cost_ns=cost_ns)
        if not is_placed:
            self._run_own(build_directory, text, verbose, error_prefix)

    def _describe(self, text: str, folder: str) -> tuple[Recipe | None, dict[str, str] | None]:
        """Returns the recipe and the parts of its key; ``None`` for what is not shared."""
        if self._shared.has_failed:
            return None, None
        try:
            recipe = read_recipe(text)
            return recipe, parts_of(recipe, folder, self._torch)
        except (UncacheableError, UnkeyableError, OSError) as error:
            self._shared.note_unshared(f"{os.path.basename(folder)}: {error}")
        except Exception as error:  # noqa: BLE001 - a part of torch's that is not what it was
            self._shared.note_unshared(f"{os.path.basename(folder)}: {type(error).__name__}: {error}")
        return None, None

    def _build(self, target: str, text: str, verbose: bool, error_prefix: str) -> tuple[bool, bytes | None]:
        """Have ninja make the library, and put it into its folder. Raises torch's error.

        Returns whether it is there, which needs room for a folder to build it in; and its bytes, if they can be stored.
        They are read before another process can put another library there.
        """
        self._precompile()
        with _build_folder(os.path.dirname(target)) as staged:
            if staged is None or not write_whole(os.path.join(staged, _FILE), text.encode(), "torch", 0o666):
                return False, None
            self._own_run(staged, verbose, error_prefix)
            made = os.path.join(staged, os.path.basename(target))
            content = _read(made)
            return _move(made, target), content

    def _run_own(self, folder: str, text: str, verbose: bool, error_prefix: str) -> None:
        """Have torch build as without lockcache; another process may have written its own file since."""
        self._precompile()
        self._thread.baton.hold()
        self.write(os.path.join(folder, _FILE), text)
        self._own_run(folder, verbose, error_prefix)

    def _precompile(self) -> None:
        precompile, self._thread.precompile = getattr(self._thread, "precompile", None), None
        if precompile is not None:
            precompile()


@contextlib.contextmanager
def _build_folder(folder: str) -> Iterator[str | None]:
    """A folder of this build alone, which is gone afterwards; ``None`` where none can be made."""
    reap_folder(folder)
    staged: str | None = os.path.join(folder, staged_name("build"))
    try:
        os.mkdir(staged, 0o700)  # type: ignore[arg-type]
    except OSError as error:
        _log.info("%s could not be made: %s", staged, error)
        staged = None
    try:
        yield staged
    finally:
        if staged is not None:
            shutil.rmtree(staged, ignore_errors=True)


def _place(target: str, content: bytes) -> bool:
    """Have the library in its folder. One that is right stays: other processes have it mapped."""
    return _read(target) == content or write_whole(target, content, "torch", 0o777, _OLD_NS)


def _move(made: str, target: str) -> bool:
    try:
        os.utime(made, ns=(_OLD_NS, _OLD_NS))
        os.replace(made, target)
    except OSError as error:
        _log.info("%s could not be written: %s", target, error)
        return False
    return True


def _read(path: str) -> bytes | None:
    with contextlib.suppress(OSError, UnkeyableError):
        return read_file(path)
    return None


def _stamps(recipe: Recipe) -> list[tuple[int, int, int] | None]:
    """Returns what tells whether a source is the file that it was: torch writes those of ``load_inline`` itself."""
    found: list[tuple[int, int, int] | None] = []
    for path in recipe.sources:
        try:
            status = os.stat(path)
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return found
