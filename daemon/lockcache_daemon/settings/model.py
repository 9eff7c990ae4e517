# SPDX-License-Identifier: Apache-2.0
"""Everything that an operator may set, for each directory and for the daemon as a whole.

Decides which settings there are. A field here is a flag (``--max-size``), a variable (``LOCKCACHE_MAX_SIZE``) and a key
of the file (``max_size``); nothing else has to be written to add one. See :mod:`.sources` for which of them counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from lockcache.errors import FormatError
from lockcache.filestream import PRIORITIES, PRIORITY_WORDS
from lockcache.layouts import GUESTS, SETTLE_SECONDS
from lockcache.lowlevel import Layout, Priority, StatedPolicy
from lockcache_daemon.settings.values import (
    Address,
    Age,
    Choice,
    Count,
    FilePath,
    Free,
    FreeSpace,
    Group,
    Interval,
    MetricsAddress,
    MetricsPath,
    Namespaces,
    Rate,
    Setting,
    Share,
    Size,
    Switch,
    setting,
)

#: The layouts that can be named; see :mod:`.stores.layouts`.
LAYOUTS: Final = ("lockcache", "cuda.core", *GUESTS)


@dataclass(frozen=True, kw_only=True)
class DirectorySettings:
    """The settings of one directory. A setting outside of a directory's table holds for every directory."""

    path: str
    max_size: int | None = field(default=None, metadata=setting(Size, "SIZE", "Size limit of each DIR, such as 10G."))
    max_entries: int | None = field(default=None, metadata=setting(Count, "N", "Most entries in each DIR, such as 1M."))
    min_free: Free | None = field(
        default=None, metadata=setting(FreeSpace, "SHARE|SIZE", "Disk space to leave free: 5% or 10G.")
    )
    max_age: float | None = field(
        default=None, metadata=setting(Age, "DURATION", "Evict entries unused for this long: 30d.")
    )
    namespaces: tuple[tuple[str, int], ...] = field(
        default=(), metadata=setting(Namespaces, "NAME=SIZE,...", "Size limits within each DIR: triton=2G.")
    )
    low_watermark: float = field(default=0.9, metadata=setting(Share, "SHARE", "Where eviction ends.", "90%"))
    policy: Priority = field(
        default="value",
        metadata=setting(
            Choice(*PRIORITY_WORDS, meanings=PRIORITY_WORDS),
            f"[{'|'.join(PRIORITIES)}]",
            "Evict by value or last use.",
            "value",
        ),
    )
    floor: int | None = field(default=None, metadata=setting(Size, "SIZE", "Never shrink a DIR below this size."))
    scrub_rate: int = field(
        default=10_000_000, metadata=setting(Rate, "SIZE", "Most bytes to verify per second.", "10M")
    )
    layout: str = field(
        default="auto", metadata=setting(Choice("auto", *LAYOUTS), "LAYOUT", "The program whose cache DIR is.", "auto")
    )
    settle: float = field(
        default=SETTLE_SECONDS, metadata=setting(Age, "DURATION", "Keep files changed this recently.", "1m")
    )
    group: bool | str = field(default=False, metadata=setting(Group, "GROUP", "Share DIR with this group.", "no"))

    @property
    def has_budget(self) -> bool:
        """Whether these settings, or the cap that the directory has, would ever evict an entry."""
        budgets = (self.max_size, self.max_entries, self.min_free, self.max_age, self.namespaces or None)
        return any(each is not None for each in budgets) or _has_cap(self.path)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the daemon as a whole, and those of its directories."""

    interval: float = field(default=0.5, metadata=setting(Interval, "DURATION", "Time between two checks.", "0.5s"))
    total: int | None = field(default=None, metadata=setting(Size, "SIZE", "One size limit for all DIRs together."))
    metrics: Address | None = field(
        default=None, metadata=setting(MetricsAddress, "ADDRESS", "Serve metrics and a status page there.")
    )
    metrics_file: str | None = field(
        default=None, metadata=setting(MetricsPath, "FILE.prom", "Write metrics there, for node exporter.")
    )
    alive_file: str | None = field(
        default=None, metadata=setting(FilePath, "FILE", "Touch it every 10 s, for liveness probes.")
    )
    standby: bool = field(default=False, metadata=setting(Switch, "", "Wait for DIRs of another daemon; take over."))
    as_json: bool = field(
        default=False, metadata=setting(Switch, "", "One JSON object per line on stdout.", key="json")
    )
    directories: tuple[DirectorySettings, ...] = ()


def settings_of(model: type[DirectorySettings | Settings]) -> dict[str, tuple[str, Setting]]:
    """Returns the settings of a model by their keys, each with the name of its field."""
    found = ((each.name, each.metadata["setting"]) for each in fields(model) if each.metadata)
    return {described.key or name: (name, described) for name, described in found}


def find_contradictions(settings: Settings) -> Iterable[tuple[DirectorySettings | None, str, str]]:
    """Yields each contradiction between settings that are valid alone: its directory, its key, and why."""
    total, floors = settings.total, 0
    for inner, outer in _nested(settings.directories):
        why = f"{inner.path} lies in {outer.path}, which is kept too: its files would count twice"
        yield inner, "path", f"{why}; accepted: one of them (torchinductor's and vLLM's have Triton's kernels in them)"
    for directory in settings.directories:
        floors += directory.floor or 0
        for key, why in _contradictions_of(directory, total):
            yield directory, key, why
    if total is not None and floors > total:
        why = f"{total} bytes are less than the floors of all directories, {floors}; accepted: at least those"
        yield None, "total", why


def _nested(directories: Sequence[DirectorySettings]) -> Iterator[tuple[DirectorySettings, DirectorySettings]]:
    """Yields each directory that lies in another, and that other."""
    by_place = {Path(os.path.realpath(each.path)): each for each in directories}
    for place, inner in by_place.items():
        outer = next((by_place[above] for above in place.parents if above in by_place), None)
        if outer is not None:
            yield inner, outer


def _contradictions_of(directory: DirectorySettings, total: int | None) -> Iterable[tuple[str, str]]:
    budgets = "--max-size, --max-entries, --min-free, --max-age, --namespaces and --total"
    if not directory.has_budget and total is None:
        yield "path", f"{directory.path} has no budget; accepted: at least one of {budgets}"
    if directory.floor is not None and total is None and directory.min_free is None:
        why = f"{directory.floor} bytes, but there is no total; accepted: together with --total or --min-free"
        yield "floor", why
    if directory.floor is not None and directory.max_size is not None and directory.floor > directory.max_size:
        yield "floor", f"{directory.floor} bytes are more than max_size, {directory.max_size}; accepted: at most that"


def _has_cap(path: str) -> bool:
    with contextlib.suppress(OSError, FormatError):
        return StatedPolicy(Layout(path)).load().max_size_bytes is not None
    return False


def distinct_paths(paths: Iterable[str]) -> list[str]:
    """Returns each directory once: a second keeper of a directory would find it kept by the first."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(os.path.realpath(path), path)
    return list(found.values())
