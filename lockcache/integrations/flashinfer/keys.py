# SPDX-License-Identifier: Apache-2.0
"""Keys of FlashInfer's libraries: its part of them, and the headers that a stored library was built with.

Keeps invariant 1 (a hit is whole, and is what was stored under that key). FlashInfer has no key: the folder's name is
its version, the architectures and the name of the library, and ninja compares times. The rest of the key is as for
torch's extensions (:mod:`lockcache.integrations.cpp_extension.keys`). FlashInfer comes with some 7,000 files, too many
to read for a hit: what its wheel contains is in the key, and an entry lists those that the compilers read. Of these
none may have been changed after the installation.
"""

from __future__ import annotations

import functools
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Final

from lockcache.integrations.cpp_extension import describe_toolkit
from lockcache.integrations.flashinfer.installed import Installed
from lockcache.integrations.framework_keys import UnkeyableError, read_file

__all__ = ["FlashInfer"]

_CUDA: Final = re.compile(r"^cuda_home = (.+)$", re.MULTILINE)
_FOLDER: Final = re.compile(r"-(?:I|isystem )(\S+)")
# Each is a rule of make's: the output, a colon, and files, with a backslash before a space and at the end of a line.
_LIST: Final = ".d"
_SPACE: Final = re.compile(r"(?<!\\)\s+")


class FlashInfer:
    """The FlashInfer of this process, for one build."""

    name = "FlashInfer"

    def __init__(self, installed: Sequence[Installed], workspace: str, text: str) -> None:
        """``workspace``: where it writes what it generates. ``text``: the build file."""
        self._installed, self._workspace = installed, workspace
        found = _CUDA.search(text)
        self._cuda = found[1] if found else ""
        self._folders = {path.replace("$cuda_home", self._cuda) for path in _FOLDER.findall(text)}

    def roots(self) -> dict[str, str]:
        """Returns the private folders of this machine, with a name for each."""
        found = {each.root: f"${each.name}" for each in self._installed} | {self._workspace: "$WORKSPACE"}
        return {**found, self._cuda: "$CUDA"} if self._cuda else found

    def known(self) -> list[str]:
        """Returns the folders of headers that :meth:`describe` and the list of an entry stand for."""
        found = [path for path in self._folders if any(each.has(path) for each in self._installed)]
        return [*found, sysconfig.get_config_var("INCLUDEPY") or "", f"{self._cuda}/include"]

    def describe(self, *, has_cuda: bool) -> str:
        """Returns what it is, and the toolkit, if that is used. Raises :class:`UnkeyableError`."""
        found = [each.described for each in self._installed]
        return repr([found, *(_describe_toolkit(self._cuda) if has_cuda else [])])

    def check(self, *, trusts_times: bool) -> None:
        """Raises :class:`UnkeyableError` where any of its files was changed after the installation."""
        for each in self._installed:
            each.check(trusts_times=trusts_times)

    def used_in(self, folder: str) -> bytes:
        """Returns a list of the files of FlashInfer's that the compilers read, which build in the folder.

        Raises :class:`UnkeyableError` where one of them was changed after the installation.
        """
        paths, found = [*_listed_in(folder)], []
        for number, each in enumerate(self._installed):
            names = sorted({each.relative(path) for path in paths if each.has(path)})
            each.check_files(names, trusts_times=False)
            found += [f"{number} {name}" for name in names]
        return "\n".join(found).encode(errors="surrogateescape")

    def has_used(self, used: bytes) -> bool:
        """Returns whether the files of a list are here as they were installed.

        Raises :class:`UnkeyableError` for what is not such a list.
        """
        lines = [line.partition(" ") for line in used.decode(errors="surrogateescape").splitlines()]
        files = [[name for number, _, name in lines if number == str(at)] for at in range(len(self._installed))]
        if not lines or sum(map(len, files)) != len(lines):
            raise UnkeyableError("it is stored without a list of headers")
        return all(each.is_unchanged(names) for each, names in zip(self._installed, files, strict=True))


def _listed_in(folder: str) -> Iterator[str]:
    """Yields the files that compilers have listed. Raises :class:`UnkeyableError` where there is no list."""
    lists = [name for name in os.listdir(folder) if name.endswith(_LIST)]
    if not lists:
        raise UnkeyableError("the compilers have not said what they read")
    for name in lists:
        text = read_file(os.path.join(folder, name)).decode(errors="surrogateescape").replace("\\\n", " ")
        for word in _SPACE.split(text.partition(": ")[2].strip()):
            yield os.path.realpath(word.replace("\\ ", " "))


@functools.cache
def _describe_toolkit(path: str) -> list[str]:
    return describe_toolkit(path)
