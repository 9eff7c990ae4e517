"""The parts of a cache object: which reader, writer and turns its arguments and its directory ask for.

Decides, once and at opening, so that no read and no write has to ask: what of a group, a network file system, a seed, a
server, compile-once, signing keys and a mode stands between the cache and the files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lockcache.arguments import (
    POLICY_VARIABLES,
    coerce_compile_once,
    coerce_group,
    coerce_key_file,
    coerce_lease_timeout,
    coerce_read_only,
    coerce_seconds,
    coerce_seed,
    coerce_switch,
    configured_file,
    configured_text,
    resolve_path,
    resolve_path_or_nowhere,
    variables_left_alone,
)
from lockcache.composition.modes import DroppingWriter, Load, in_mode, open_in_mode
from lockcache.explain import Stated
from lockcache.filestream import ClosureFile, EntryWriter, Priority, Viewer, Writer, apply_policy, has_seed
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.bundle import SeededReader
from lockcache.filestream.compile_once import CompileOnce, ImplicitTurns
from lockcache.filestream.entry import CountedReads, EntryReader, KeyRing, Loader, load_keys, loader_of
from lockcache.filestream.seeding import detach_before_cap, seed_if_possible
from lockcache.reports import Counters, CountersReport
from lockcache.resource import renewed_keys

if TYPE_CHECKING:
    from lockcache.composition.missed import MissedEntry
    from lockcache.filestream import CacheDirectory
    from lockcache.filestream.accounting import RunCounts
    from lockcache.filestream.disk import Layout
    from lockcache.remote import BackedReads, Backing
    from lockcache.remote.manifest import Recorder


_log = logging.getLogger("lockcache")


def coerce_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a pickled copy opens with: the arguments of a cache, with what variables say for those not given.

    Not the cap: it is the directory's by then, and may have been changed since. Raises :class:`TypeError` or
    :class:`ValueError` naming the value.
    """
    place = resolve_path if given["read_only"] is False else resolve_path_or_nowhere
    return {
        "path": place(given["path"]),
        "lock_timeout_seconds": coerce_seconds("lock_timeout_seconds", given["lock_timeout_seconds"]),
        "fsync": coerce_switch("fsync", given["fsync"]),
        "record_files": coerce_switch("record_files", given["record_files"]),
        "verified_only": coerce_switch("verified_only", given["verified_only"]),
        "compile_once": coerce_compile_once(given["compile_once"]),
        "lease_timeout_seconds": coerce_lease_timeout(given["lease_timeout_seconds"]),
        "group": coerce_group(given["group"]),
        "signing_key_file": coerce_key_file(given["signing_key_file"]) or False,
        "seed": coerce_seed(given["seed"]) or None,
        "read_only": coerce_read_only(given["read_only"]),
    }


def reopen(kind: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Returns the copy of a pickled cache of this kind, whose policy is the directory's by now."""
    with variables_left_alone(POLICY_VARIABLES):
        return kind(**arguments)


class Parts:
    """The parts of one cache object."""

    def __init__(
        self, arguments: Mapping[str, Any], cap: int | None, priority: Priority | None, first_cap_bytes: int | None
    ) -> None:
        """Open the directory. ``arguments`` are coerced; ``cap`` and ``priority`` are what the program states.

        Raises what :class:`.cache.FileStreamProgramCache` does.
        """
        self._arguments = arguments
        # Incremented without a lock, as in .entry.reader: a signal handler may count in the midst of anything.
        self.counts = dict.fromkeys(("puts", "evictions", "dropped_writes", "uncacheable"), 0)
        self._open_directory(first_cap_bytes)
        self._apply_rules(cap, priority)
        self._find_sources()
        self._join_reader_and_writer()
        self.closures = ClosureFile(self.directory, self._keys)
        self.report = self._report()
        self.misses = StatedMisses(self.directory.layout, self._keys, self.report, is_renewing=self.renewed is not None)

    def _open_directory(self, first_cap_bytes: int | None) -> None:
        arguments = self._arguments
        self.directory = open_in_mode(
            arguments["path"],
            arguments["lock_timeout_seconds"],
            group=arguments["group"],
            first_cap_bytes=first_cap_bytes,
            read_only=arguments["read_only"],
        )
        self._keys = None if self.directory.is_nowhere else load_keys(arguments["signing_key_file"])

    def _apply_rules(self, cap: int | None, priority: Priority | None) -> None:
        """Bring the directory under the cap that the program states, and its seed up to date, if there is one."""
        directory, path = self.directory, self._arguments["seed"] or ""
        # As stated when the directory was opened, a moment ago. A seed that is attached since is the next one's.
        may_have_seed = path != "" or directory.policy.latest.seed is not None
        if may_have_seed:  # first: nothing is evicted for a seed that is about to be removed, nor by the previous cap
            detach_before_cap(directory, cap)
        evicted = apply_policy(directory, cap, priority)
        self._is_seeded = False
        if may_have_seed:
            seeding = seed_if_possible(directory, path, cap, is_signed=self._keys is not None)
            evicted += seeding.evicted
            # A seed for which this process waits no longer may stand before this object is gone.
            self._is_seeded = seeding.is_awaited
        self._is_seeded = self._is_seeded or _is_seeded(directory)
        self.counts["evictions"] += evicted.entries

    def _find_sources(self) -> None:
        """Find the server behind the directory, and the manifest that lists look-ups, if variables name any."""
        self._manifest = "" if self.directory.is_nowhere else configured_file("LOCKCACHE_MANIFEST")
        self._recorder = _find_recorder(self._manifest)
        self.backing = self._find_backing(self._keys, str(self._arguments["signing_key_file"]))

    def _join_reader_and_writer(self) -> None:
        arguments, keys, recorder = self._arguments, self._keys, self._recorder
        timeout, lease_timeout = arguments["lock_timeout_seconds"], arguments["lease_timeout_seconds"]
        layout, compile_once = self.directory.layout, arguments["compile_once"]
        reader = self._make_reader(keys, recorder, verified_only=arguments["verified_only"], compile_once=compile_once)
        self.once = CompileOnce(layout, reader, self.reader, lease_timeout)
        #: The names that this process stored, if nothing else is to be read.
        self.renewed = renewed_keys(layout.root)
        is_alone = self.directory.is_read_only or self.renewed is not None
        self.implicit = ImplicitTurns(self.once, reader) if compile_once and not is_alone else None
        load: Load = reader.load if self.implicit is None else self.implicit.load
        files, fsync = arguments["record_files"], arguments["fsync"]
        writer = EntryWriter(self.directory, timeout, fsync=fsync, use_record_files=files, keys=keys)
        load, backed_writer = self._add_backing(load, writer, lease_timeout)
        self.load, self.writer = in_mode(self.reader, load, backed_writer, self.renewed)
        if recorder is not None and self.renewed is not None:  # where most is hidden from the reader
            self.load = recorder.recording(self.load).load
        self.viewer = Viewer(self.directory, self.writer, timeout, self.counts, keys, is_seeded=self.seeded is not None)

    def _make_reader(
        self, keys: KeyRing | None, recorder: Recorder | None, *, verified_only: bool, compile_once: bool
    ) -> Loader:
        """Returns the loader that answers lookups from the directory and its seed alone."""
        directory, layout = self.directory, self.directory.layout
        is_shared, is_seeded = directory.is_shared, self._is_seeded
        # There a miss does more than count, and folders are checked before the files in them.
        asks_first = not (compile_once or is_shared or layout.is_network or self.backing or is_seeded or recorder)
        self.reader = EntryReader(layout, directory.recency, keys, verified_only=verified_only, asks_first=asks_first)
        self.reader.run = _find_run_counts()
        files = loader_of(layout, self.reader, is_shared=is_shared)
        self.seeded = SeededReader(layout, files, self.reader, keys) if is_seeded else None
        reader: Loader = self.seeded or files
        if self.reader.run is not None:
            reader = CountedReads(self.reader, reader)
        return reader if recorder is None else recorder.recording(reader.load)

    def _add_backing(self, load: Load, writer: EntryWriter, lease_timeout: float | None) -> tuple[Load, Writer]:
        """Returns how this object loads and stores: with the server behind the directory, if there is one."""
        self.backed: BackedReads | None = None
        if self.backing is None:
            return load, writer
        from lockcache.remote import BackedReads, BackedWriter  # few have a server

        store = self.backing.store
        if self.directory.is_read_only:
            copies = DroppingWriter(self.directory)
            self.backed = BackedReads(store, copies, load, self.reader, None, lease_timeout, self.counts)
            return self.backed.load, writer
        backed_writer = BackedWriter(writer, store)
        if self.renewed is not None:
            return load, backed_writer
        self.backed = BackedReads(store, backed_writer, load, self.reader, self.implicit, lease_timeout, self.counts)
        self.backing.prefetch(self._manifest, backed_writer, self.counts)
        return self.backed.load, backed_writer

    def _report(self) -> CountersReport:
        """Returns the report of what this object counts, made together with those of its server, manifest and run."""
        found = (self._recorder, None if self.backing is None else self.backing.report, self.reader.run)
        others = [each.report for each in found if each is not None]
        directory = self.directory
        keep = partial(_keep_misses, directory.layout)
        hold = None if directory.is_read_only else directory.counting
        return CountersReport(partial(_counted, self.reader, self.counts), hold, keep, others)

    def _find_backing(self, keys: KeyRing | None, key_file: str) -> Backing | None:
        """Returns the server behind the directory, if a variable names one."""
        if self.directory.is_nowhere or not configured_text("LOCKCACHE_REMOTE"):
            return None
        from lockcache.remote import backing_of  # few have a server

        return backing_of(self.directory, keys, key_file)


class StatedMisses:
    """Notes the misses of programs that state what their keys are made of, for ``lockcache why``."""

    def __init__(self, layout: Layout, keys: KeyRing | None, report: CountersReport, *, is_renewing: bool) -> None:
        """``is_renewing``: whole entries are hidden from the program, by ``$LOCKCACHE_RECACHE``."""
        self._is_renewing = is_renewing
        self._layout = layout
        self._keys = keys
        self._report = report

    def missed(self, name: str, stated: Stated | None) -> MissedEntry:
        """Returns what is known of a key that was looked up just now and missed."""
        from lockcache.composition.missed import MissedEntry  # few are sealed

        return MissedEntry(name, stated, self._layout, self._keys, is_renewing=self._is_renewing)

    def note(self, now_ns: int, name: str, stated: Stated) -> None:
        """Note a miss whose entry is about to be stored: only until then can be seen what the program found there."""
        if not stated.parts:
            return
        replaced = ""
        if has_entry(self._layout, name):  # few have one
            from lockcache.filestream.inspect import flaw_of

            replaced = flaw_of(self._layout, name, self._keys) or ("renewed" if self._is_renewing else "")
        self._report.note((now_ns, name, stated.label, stated.parts, replaced))


class DroppedWrites:
    """Counts writes that were dropped, and logs the first."""

    def __init__(
        self, path: str, arguments: Mapping[str, Any], directory: CacheDirectory, counts: dict[str, int]
    ) -> None:
        self._path, self._directory, self._counts = path, directory, counts
        # A drop that was asked for is not a warning.
        self._level = logging.INFO if arguments["read_only"] is True else logging.WARNING

    def count(self, reason: str) -> None:
        """Count one. Later ones, on a disk that stays full, are not warnings."""
        level = logging.DEBUG if self._counts["dropped_writes"] or self._directory.is_nowhere else self._level
        self._counts["dropped_writes"] += 1
        _log.log(level, "%s: a write was dropped, the program goes on without it: %s", self._path, reason)


def _is_seeded(directory: CacheDirectory) -> bool:
    layout, seed = directory.layout, directory.policy.latest.seed
    if layout.is_network:
        # No seed is copied there. If the server's own processes filled the directory, the policy, which was just read,
        # names the seed: otherwise the server is not asked for the file.
        return seed is not None and has_seed(layout)
    # The policy may name a seed which is still being copied.
    return (seed is not None and not seed.is_detached) or has_seed(layout)


def _find_run_counts() -> RunCounts | None:
    """Returns this process's counts for ``lockcache run``, if that started it."""
    if not configured_text("LOCKCACHE_RUN"):
        return None
    from lockcache.filestream.accounting import counts_of_run  # few are

    return counts_of_run()


def _find_recorder(manifest: str) -> Recorder | None:
    """Returns the recorder of the keys that are looked up, if a variable names a file for them."""
    if not manifest:
        return None
    from lockcache.remote.manifest import recorder_of  # few have one

    return recorder_of(manifest)


def _keep_misses(layout: Layout, misses: list[tuple[Any, ...]]) -> None:
    from lockcache.filestream.inspect import Miss, add_misses_locked  # at a report, and few programs state their keys

    add_misses_locked(layout, [Miss._make(each) for each in misses])


def _counted(reader: EntryReader, counts: dict[str, int]) -> Counters:
    return Counters(**reader.counts(), saved_ns=reader.saved_ns, **counts)
