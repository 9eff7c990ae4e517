# SPDX-License-Identifier: Apache-2.0
"""A trial: what one host does, what the other sees of it, and the judgement. Tried in both directions.

Both hosts judge the same numbers, so both come to the same certificate.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lockcache.doctor.checks_process import ChildDiedError, ChildHungError
from lockcache.doctor.findings import UNTESTED, Finding
from lockcache.doctor.pair.messages import Link, Numbers, PeerFailedError
from lockcache.filestream.disk import (
    BY_PATH,
    Descriptor,
    Layout,
    open_folder,
    read_small,
    write_all,
)

_MOST_ERRNO: Final = 4096
_UNTRIED: Final = "what failed here may fail in a cache too"


class Side(NamedTuple):
    """The means of a host in one direction of a trial."""

    link: Link
    #: The folder of this direction, which the acting host made.
    path: str
    #: The time to look for what is not seen yet.
    limit_seconds: float

    @property
    def layout(self) -> Layout:
        """The layout for functions of the store, which use its paths like those of a private directory: in full."""
        return Layout(self.path, is_shared=False)

    def at(self, name: str) -> str:
        """Returns a path in the folder."""
        return f"{self.path}/{name}"

    def sync(self) -> None:
        """Wait until both hosts are here."""
        self.link.sync()

    def watch(self, **looks: Callable[[], bool]) -> Numbers:
        """Watch like :meth:`Link.watch`, for ``limit_seconds``; the numbers state the limit."""
        return self.link.watch(looks, self.limit_seconds) | {"limit_us": int(self.limit_seconds * 1e6)}

    def put(self, name: str, content: bytes) -> None:
        """Write a file and put it under its name by a rename, over the one that is there."""
        made = Descriptor()
        self.layout.reach.create(self.at(f"{name}.new"), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, made)
        with made as fd:
            write_all(fd, content)
        self.layout.reach.rename(self.at(f"{name}.new"), self.at(name))

    def holds(self, name: str, content: bytes) -> bool:
        """Returns whether opening the file now reads ``content``. An error counts as other bytes: a miss."""
        with contextlib.suppress(OSError):
            return read_small(None, self.at(name), len(content) + 1) == content
        return False

    def freshly(self, name: str, look: Callable[[], bool]) -> bool:
        """Open each folder on the way to the file again, outermost first. Returns whether ``look`` is true then."""
        folders = name.split("/")[:-1]
        for depth in range(len(folders) + 1):
            with contextlib.suppress(OSError), open_folder(self.path, *folders[:depth]):
                pass
        return look()

    def is_there(self, name: str) -> bool:
        """Returns whether a file or folder can be opened. An error counts as a missing file: a miss."""
        with contextlib.suppress(OSError), BY_PATH.open(self.at(name), os.O_RDONLY | os.O_CLOEXEC):
            return True
        return False

    def is_gone(self, name: str) -> bool:
        """Returns whether a file or folder cannot be opened."""
        return not self.is_there(name)


class Trial(NamedTuple):
    """One check."""

    act: Callable[[Side], Numbers]
    observe: Callable[[Side], Numbers]
    #: Judges what both hosts saw when the first acted, and when the second did.
    judge: Callable[[list[Numbers]], Finding]


def run_trial(name: str, number: int, trial: Trial, link: Link, folder: str, is_first: bool, limit: float) -> Finding:
    """Try in both directions, together with the other host. Raises :class:`LostError`."""
    try:
        link.begin(number)
        return trial.judge([_try(trial, link, f"{folder}/{number}-{way}", is_first != way, limit) for way in (0, 1)])
    except PeerFailedError as error:
        return Finding(name, UNTESTED, f"failed on the other host: {_words(error.number)}", _UNTRIED)
    except (OSError, ChildDiedError, ChildHungError) as error:
        link.fail(getattr(error, "errno", None) or errno.EIO)
        words = str(error) if isinstance(error, OSError) else "the process that tried it ended, or hangs"
        return Finding(name, UNTESTED, f"failed on this host: {words}", _UNTRIED)


def _words(number: int) -> str:
    """Returns what an error number means that the other host sent."""
    return os.strerror(number) if 0 < number < _MOST_ERRNO else "for no reason that it gives"


def _try(trial: Trial, link: Link, path: str, is_acting: bool, limit_seconds: float) -> Numbers:
    if is_acting:
        BY_PATH.make_folder(path)
    link.sync()
    seen = (trial.act if is_acting else trial.observe)(Side(link, path, limit_seconds))
    return {**link.exchange(seen), **seen}


def worst(seen: list[Numbers], name: str) -> int:
    """Returns the longest of what both directions took, in microseconds; -1 where one never came to an end."""
    times = [numbers.get(f"{name}_us", -1) for numbers in seen]
    return -1 if min(times) < 0 else max(times)


def is_late(seen: list[Numbers], name: str) -> bool:
    """Returns whether a host saw the old state although it looked after it was informed of the new one."""
    return any(numbers.get(f"{name}_stale", 1) > 0 for numbers in seen)


def each_when(seen: list[Numbers], names: Mapping[str, str]) -> str:
    """Returns in words how soon each of these was seen."""
    return "; ".join(f"{words} {_when(seen, name)}" for name, words in names.items())


def _when(seen: list[Numbers], name: str) -> str:
    """Returns in words how soon this was seen."""
    if not is_late(seen, name):
        return "at once"
    us = worst(seen, name)
    if us >= 0:
        return f"after {span_of(us)}"
    limit = span_of(max(numbers.get("limit_us", 0) for numbers in seen))
    unseen = [numbers for numbers in seen if numbers.get(f"{name}_us", -1) < 0]
    is_cured = all(numbers.get(f"{name}_fresh") for numbers in unseen)
    return f"not within {limit}{', but at once when its folder is opened first' if is_cured else ''}"


def span_of(us: int) -> str:
    """Returns a duration in words."""
    return f"{us / 1e6:.1f} s" if us >= 10**6 else f"{us / 1000:.1f} ms"
