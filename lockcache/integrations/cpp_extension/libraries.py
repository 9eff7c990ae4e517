# SPDX-License-Identifier: Apache-2.0
"""Libraries that ninja builds, on lockcache: looked up in the place of ninja, and made by it where they are missing.

By turns, so that one process builds each. It is built in a folder of its own, from nothing, because ninja believes the
times of what an earlier build left, and an entry is for others too; the library appears in the program's folder by one
rename. Keeps invariant 5 (death is free): a build folder has its owner's name, and goes with the next build; what the
ninja of a killed process still writes goes nowhere. Keeps invariant 7 (never take the job down): what has no key is
left to the program.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from lockcache.errors import UncacheableError
from lockcache.integrations.adapter import Shared
from lockcache.integrations.cpp_extension.keys import Framework, parts_of
from lockcache.integrations.cpp_extension.recipe import Recipe, read_recipe
from lockcache.integrations.framework_keys import UnkeyableError, key_of, read_file
from lockcache.integrations.key_parts import parts_of_extension
from lockcache.integrations.staged import reap_folder, staged_name, write_whole

__all__ = ["BUILD_FILE", "Headers", "Libraries", "read_whole"]

_log = logging.getLogger("lockcache")

BUILD_FILE: Final = "build.ninja"
# The library's name is the program's, and may be longer than that of a file in an entry.
_NAME: Final = "library"
_HEADERS: Final = "headers"
#: Is where ninja has built, but for what is built in folders of lockcache's.
_NINJAS_LOG: Final = ".ninja_log"
# Older than any source: ninja links again what it did not link itself, and never takes it for what it would make.
_OLD_NS: Final = 1_000_000_000


_Result = TypeVar("_Result")


class Headers(Protocol):
    """Headers that are not in keys one by one, because they are too many to read for a hit."""

    def check(self, *, trusts_times: bool) -> None:
        """Raises :class:`UnkeyableError` where they are not what the key says, so that nothing is to be built.

        ``trusts_times``: read those alone that may have been changed by their times, which takes a twentieth.
        """

    def used_in(self, folder: str) -> bytes:
        """Returns what an entry is to say of those that were read for what was built in a folder.

        Raises :class:`UnkeyableError` where one of them is not what the key says.
        """

    def has_used(self, used: bytes) -> bool:
        """Returns whether those of an entry are the ones that are here."""


class Libraries:
    """The libraries of one framework, in a directory that others share."""

    def __init__(self, shared: Shared, framework: Framework, headers: Headers | None = None) -> None:
        self._shared, self._framework, self._headers = shared, framework, headers

    def have(self, folder: str, text: str, build: Callable[[str], object]) -> bool:
        """Have the library in its folder, as the build file ``text`` says. Raises what ``build`` does.

        ``build(staged)``: have ninja build in a folder that has the build file. Returns ``False`` where the framework
        is to build by itself.
        """
        recipe, parts = self._describe(text, folder)
        if recipe is None or parts is None:
            return False
        key = f"extension/{key_of(parts)}"
        label = os.path.splitext(recipe.target)[0]
        found = self._shared.begin_files(key, label, lambda: parts_of_extension(parts))
        target = os.path.join(folder, recipe.target)
        if isinstance(found, dict):
            return self._lay_down(target, found)
        with self._shared.holding(found) as turn:
            if not self._may_build(folder):
                return False
            began_ns, before = time.perf_counter_ns(), _stamps(recipe)
            is_placed, files = self._build(target, text, build)
            cost_ns = time.perf_counter_ns() - began_ns
            # Not if a source or a header was changed meanwhile.
            if files and _stamps(recipe) == before and self._describe(text, folder)[1] == parts:
                self._shared.store_files(key, files, turn, compile_cost_ns=cost_ns)
        return is_placed

    def _describe(self, text: str, folder: str) -> tuple[Recipe | None, dict[str, str] | None]:
        """Returns the recipe and the parts of its key; ``None`` for what is not shared."""

        def describe() -> tuple[Recipe, dict[str, str]]:
            recipe = read_recipe(text)
            return recipe, parts_of(recipe, folder, self._framework)

        return (None if self._shared.has_failed else self._tried(folder, describe)) or (None, None)

    def _tried(self, folder: str, action: Callable[[], _Result]) -> _Result | None:
        """Returns what ``action`` does; ``None`` if it raises, which is why a library is not shared."""
        try:
            return action()
        except (UncacheableError, UnkeyableError, OSError) as error:
            self._shared.note_unshared(f"{os.path.basename(folder)}: {error}")
        except Exception as error:  # noqa: BLE001 - a part of the framework's that is not what it was
            self._shared.note_unshared(f"{os.path.basename(folder)}: {type(error).__name__}: {error}")
        return None

    def _lay_down(self, target: str, files: dict[str, bytes]) -> bool:
        """Have the library of an entry in its folder, if it was built with the headers that are here."""

        def check() -> bool:
            if self._headers is not None and not self._headers.has_used(files.get(_HEADERS, b"")):
                raise UnkeyableError("it is stored with headers that were changed here")
            return True

        is_right = self._tried(os.path.dirname(target), check)
        return bool(is_right) and _NAME in files and _place(target, files[_NAME])

    def _may_build(self, folder: str) -> bool:
        """Returns whether a library that is built here may be stored."""

        def check() -> bool:
            if self._headers is not None:
                # Where the framework has built by itself, one may have been found to be changed after a build.
                self._headers.check(trusts_times=not os.path.exists(os.path.join(folder, _NINJAS_LOG)))
            return True

        return bool(self._tried(folder, check))

    def _build(self, target: str, text: str, build: Callable[[str], object]) -> tuple[bool, dict[str, bytes] | None]:
        """Have ninja make the library, and put it into its folder. Raises the framework's error.

        Returns whether it is there, which needs room for a folder to build it in, and the headers that the key says;
        and the files of its entry, if they can be stored. They are read before another process can put another library
        there.
        """
        folder, name = os.path.split(target)
        with _build_folder(folder) as staged:
            if staged is None or not write_whole(os.path.join(staged, BUILD_FILE), text.encode(), "torch", 0o666):
                return False, None
            build(staged)
            used = self._tried(folder, lambda: self._used_in(staged))
            if used is None:
                return False, None
            made = os.path.join(staged, name)
            files = self._tried(folder, lambda: {_NAME: read_file(made), **used})
            return _move(made, target), files

    def _used_in(self, staged: str) -> dict[str, bytes]:
        """Returns what an entry says of headers. Raises :class:`UnkeyableError` or :class:`OSError`."""
        return {} if self._headers is None else {_HEADERS: self._headers.used_in(staged)}


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
    return read_whole(target) == content or write_whole(target, content, "torch", 0o777, _OLD_NS)


def _move(made: str, target: str) -> bool:
    try:
        os.utime(made, ns=(_OLD_NS, _OLD_NS))
        os.replace(made, target)
    except OSError as error:
        _log.info("%s could not be written: %s", target, error)
        return False
    return True


def read_whole(path: str) -> bytes | None:
    """Returns what a file contains; ``None`` for one that cannot be read, or is larger than an entry may be."""
    with contextlib.suppress(OSError, UnkeyableError):
        return read_file(path)
    return None


def _stamps(recipe: Recipe) -> list[tuple[int, int, int] | None]:
    """Returns what tells whether a source is the file that it was: frameworks write those that they generate."""
    found: list[tuple[int, int, int] | None] = []
    for path in recipe.sources:
        try:
            status = os.stat(path)
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return found
