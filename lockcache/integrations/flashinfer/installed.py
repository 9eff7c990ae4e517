# SPDX-License-Identifier: Apache-2.0
"""Files of an installed distribution: which they are, and whether they were changed after the installation.

An installer writes RECORD last, with the digest of each file. So a file to which nothing was done since, as its ctime
says, is the one that RECORD states, and for the others the digest decides. Not the mtime, which copies keep: a patched
header that ``cp -p`` or a Dockerfile's COPY put there is older than RECORD. After a build the digests of all that the
compilers read decide: in a copy of a whole environment, RECORD may be the younger one. To read all files takes a second
of processor time, in which a kernel that does not compile would keep others from their error. Keeps invariant 1 (a hit
is whole, and is what was stored under that key) with one look at the time of each file that a library was built with.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lockcache.integrations.framework_keys import UnkeyableError, digest, read_file

__all__ = ["Installed"]


class _Record(NamedTuple):
    """The lines about the files of one folder, and when they were written."""

    text: bytes
    placed_ns: int


class Installed:
    """The files of one distribution in some folders."""

    def __init__(self, name: str, root: str, folders: Iterable[str | os.PathLike[str]]) -> None:
        """``root``: the folder with all of them, two below that of all distributions."""
        self.name, self.root = name, os.path.realpath(root)
        self._folders = tuple({os.path.realpath(path): None for path in folders})
        self._site = os.path.dirname(os.path.dirname(self.root))

    def has(self, path: str) -> bool:
        """Returns whether a file or folder is one of them. No link is followed."""
        return f"{path}/".startswith(self.root + "/")

    def relative(self, path: str) -> str:
        """Returns the path within the root."""
        return path[len(self.root) + 1 :]

    @functools.cached_property
    def described(self) -> str:
        """The digest of what was installed. Raises :class:`UnkeyableError` where nobody knows."""
        return digest(self._record.text)

    @functools.cached_property
    def _record(self) -> _Record:
        # Not by `importlib.metadata`, which takes as long as all the rest of a hit.
        start = f"{self.name.replace('-', '_')}-"
        names = [name for name in os.listdir(self._site) if name.startswith(start) and name.endswith(".dist-info")]
        path = f"{self._site}/{names[0]}/RECORD" if len(names) == 1 else ""
        content = b"\n%b\n" % read_file(path) if os.path.isfile(path) else b""
        # Paths of other files may be private. The lines are sorted, and there are too many to look at each for a hit.
        prefix = f"\n{self.root.removeprefix(self._site)[1:]}/".encode()
        first, last = content.find(prefix), content.rfind(prefix)
        if first < 0:
            raise UnkeyableError(f"{self.name} is not installed from a wheel")
        return _Record(content[first : content.index(b"\n", last + 1)], os.stat(path).st_ctime_ns)

    @functools.cached_property
    def _digests(self) -> Mapping[str, str]:
        """The digest of each file, by its path within the root."""
        lines = self._record.text.decode(errors="surrogateescape").splitlines()
        stated = [line.rsplit(",", 2) for line in lines if line.count(",") >= 2]
        return {self.relative(f"{self._site}/{name}"): value for name, value, _ in stated}

    def is_unchanged(self, names: Iterable[str]) -> bool:
        """Returns whether the files of these paths within the root are those that were installed."""
        return next(self._changed(names, trusts_times=True), None) is None

    def check(self, *, trusts_times: bool) -> None:
        """Raises :class:`UnkeyableError` where a file in the folders is not the one that was installed."""
        names = (self.relative(path) for folder in self._folders for path in _files_in(folder))
        self.check_files(names, trusts_times=trusts_times)

    def check_files(self, names: Iterable[str], *, trusts_times: bool) -> None:
        """Raises :class:`UnkeyableError` where a file of these paths within the root is not the one installed."""
        for name in self._changed(names, trusts_times=trusts_times):
            raise UnkeyableError(f"{self.name} was changed after it was installed: {name}")

    def _changed(self, names: Iterable[str], *, trusts_times: bool) -> Iterator[str]:
        placed_ns = self._record.placed_ns
        for name in names:
            path = f"{self.root}/{name}"
            try:
                # Of a link, too: it may have been put in the place of the file.
                changed_ns = max(os.lstat(path).st_ctime_ns, os.stat(path).st_ctime_ns)
                is_doubtful = not trusts_times or changed_ns > placed_ns
                content = read_file(path) if is_doubtful else b""
            except OSError:  # it is gone
                yield name
                continue
            if is_doubtful and self._digests.get(name) != _as_recorded(content):
                yield name


def _as_recorded(content: bytes) -> str:
    found = hashlib.sha256(content, usedforsecurity=False).digest()
    return f"sha256={base64.urlsafe_b64encode(found).decode().rstrip('=')}"


def _files_in(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(".pyc"):
                yield os.path.join(place, name)
