"""Everything that an operator may set, for each directory and for the daemon as a whole.

Decides which settings there are. A field here is a flag (``--max-size``), a variable (``LOCKCACHE_MAX_SIZE``) and a key
of the file (``max_size``); nothing else has to be written to add one. See :mod:`.sources` for which of them counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from lockcache.errors import PolicyError
from lockcache.filestream import PRIORITIES
from lockcache.layouts import GUESTS, SETTLE_SECONDS
from lockcache.lowlevel import Layout, PolicyFile, Priority
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
)

#: The layouts that can be named; see :mod:`.stores.layouts`.
LAYOUTS: Final = ("lockcache", "cuda.core", *GUESTS)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, arbitrary_types_allowed=True)


class DirectorySettings(_Model):
    """The settings of one directory. A setting outside of a directory's table holds for every directory."""

    path: str
    max_size: Annotated[int | None, Size, Setting("SIZE", "Size limit of each DIR, such as 10G.")] = None
    max_entries: Annotated[int | None, Count, Setting("N", "Most entries in each DIR, such as 1M.")] = None
    min_free: Annotated[
        Free | None,
        FreeSpace,
        Setting("SHARE|SIZE", "Disk space to leave free: 5% or 10G."),
    ] = None
    max_age: Annotated[float | None, Age, Setting("DURATION", "Evict what was not used for so long: 30d.")] = None
    namespaces: Annotated[
        tuple[tuple[str, int], ...],
        Namespaces,
        Setting("NAME=SIZE,...", "Size limits within each DIR: triton=2G."),
    ] = ()
    low_watermark: Annotated[float, Share, Setting("SHARE", "Where eviction ends.", "90%")] = 0.9
    policy: Annotated[
        Priority,
        Choice(*PRIORITIES),
        Setting(
            f"[{'|'.join(PRIORITIES)}]",
            "Evict by last use or cost.",
            "lru",
        ),
    ] = "lru"
    floor: Annotated[int | None, Size, Setting("SIZE", "What --total and --min-free leave each DIR.")] = None
    scrub_rate: Annotated[
        int,
        Rate,
        Setting("SIZE", "Verify so much a second.", "10M"),
    ] = 10_000_000
    layout: Annotated[
        str,
        Choice("auto", *LAYOUTS),
        Setting("LAYOUT", "Whose files are in DIR.", "auto"),
    ] = "auto"
    settle: Annotated[
        float,
        Age,
        Setting("DURATION", "Spare files this new.", "1m"),
    ] = SETTLE_SECONDS
    group: Annotated[
        bool | str,
        Group,
        Setting("GROUP", "Share DIR with this group.", "no"),
    ] = False

    @property
    def has_budget(self) -> bool:
        """Whether these settings, or the cap that the directory has, would ever evict an entry."""
        budgets = (self.max_size, self.max_entries, self.min_free, self.max_age, self.namespaces or None)
        return any(each is not None for each in budgets) or _has_cap(self.path)


class Settings(_Model):
    """The settings of the daemon as a whole, and those of its directories."""

    interval: Annotated[float, Interval, Setting("DURATION", "Time between two checks.", "0.5s")] = 0.5
    total: Annotated[int | None, Size, Setting("SIZE", "One size limit for all DIRs together.")] = None
    metrics: Annotated[
        Address | None,
        MetricsAddress,
        Setting("ADDRESS", "Serve metrics and a status page there."),
    ] = None
    metrics_file: Annotated[
        str | None, MetricsPath, Setting("FILE.prom", "Write metrics there, for node exporter.")
    ] = None
    alive_file: Annotated[
        str | None,
        FilePath,
        Setting("FILE", "Touch it every 10 s, for liveness probes."),
    ] = None
    standby: Annotated[bool, Switch, Setting("", "Wait for DIRs of another daemon; take over.")] = False
    as_json: Annotated[bool, Switch, Setting("", "One JSON object per line on stdout.")] = Field(False, alias="json")
    directories: tuple[DirectorySettings, ...] = ()


def find_contradictions(settings: Settings) -> Iterable[tuple[DirectorySettings | None, str, str]]:
    """Yields each contradiction between settings that are valid alone: its directory, its key, and why."""
    total, floors = settings.total, 0
    for directory in settings.directories:
        floors += directory.floor or 0
        for key, why in _contradictions_of(directory, total):
            yield directory, key, why
    if total is not None and floors > total:
        why = f"{total} bytes are less than the floors of all directories, {floors}; accepted: at least those"
        yield None, "total", why


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
    with contextlib.suppress(OSError, PolicyError):
        return PolicyFile(Layout(path)).load().max_size_bytes is not None
    return False


def distinct_paths(paths: Iterable[str]) -> list[str]:
    """Returns each directory once: a second keeper of a directory would find it kept by the first."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(os.path.realpath(path), path)
    return list(found.values())
