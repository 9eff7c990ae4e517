# SPDX-License-Identifier: Apache-2.0
"""The parts of a cache object: which reader, writer and turns its arguments and its directory ask for.

Decides, once and at opening, so that no read and no write has to ask: what of a group, a network file system, a seed, a
server, compile-once, signing keys and a mode stands between the cache and the files.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from lockcache import arguments as checks
from lockcache.arguments import configured_text
from lockcache.asked_once import AskedOnce
from lockcache.composition.lookup import Lookup, ServedLookup
from lockcache.explain import Stated
from lockcache.filestream import (
    ClosureFile,
    EntryWriter,
    Priority,
    Viewer,
    Writer,
    apply_policy,
    configured_priority,
    has_seed,
)
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.bundle import SeedSource
from lockcache.filestream.compile_once import CompileOnce, ImplicitTurns
from lockcache.filestream.entry import EntryReader, KeyRing, Load, load_keys, reader_of
from lockcache.filestream.repair import Repair, recount_all
from lockcache.filestream.seeding import detach_before_cap, seed_if_possible
from lockcache.reports import Counters, CountersReport
from lockcache.resource import coerce_max_size_bytes, renewed_keys

if TYPE_CHECKING:
    from lockcache.composition.missed import MissedEntry
    from lockcache.filestream import CacheDirectory
    from lockcache.filestream.disk import Layout
    from lockcache.remote import Backing
    from lockcache.remote.manifest import Recorder


_log = logging.getLogger("lockcache")


def _coerce_cap(value: object) -> int | None:
    return coerce_max_size_bytes(value) or checks.configured_cap()


# The check of each argument, asked only where somebody says something: the caller, or the variable. And what a caller
# gives that says nothing, and what the argument is then.
_ARGUMENTS: Final[dict[str, tuple[Callable[[Any], Any], str, object, object]]] = {
    "max_size_bytes": (_coerce_cap, "LOCKCACHE_MAX_SIZE", None, None),
    "priority": (lambda _: configured_priority(), "LOCKCACHE_POLICY", None, None),
    "lock_timeout_seconds": (partial(checks.coerce_seconds, "lock_timeout_seconds"), "", 5.0, 5.0),
    "fsync": (partial(checks.coerce_switch, "fsync"), "", False, False),
    "record_files": (partial(checks.coerce_switch, "record_files"), "", False, False),
    "verified_only": (partial(checks.coerce_switch, "verified_only"), "", False, False),
    "compile_once": (checks.coerce_compile_once, "LOCKCACHE_COMPILE_ONCE", None, False),
    "lease_timeout_seconds": (checks.coerce_lease_timeout, "LOCKCACHE_LEASE_TIMEOUT", None, None),
    "group": (checks.coerce_group, "LOCKCACHE_GROUP", None, False),
    "signing_key_file": (checks.coerce_key_file, "LOCKCACHE_SIGNING_KEY_FILE", None, False),
    "seed": (checks.coerce_seed, "LOCKCACHE_SEED", None, None),
    "read_only": (checks.coerce_read_only, "LOCKCACHE_READONLY", "auto", "auto"),
}


#: The counts of a cache object. Incremented without a lock, as in .entry.reader: a signal handler may count in the
#: midst of anything.
NOTHING_COUNTED: Final = dict.fromkeys(("puts", "evictions", "dropped_writes", "uncacheable"), 0)
# The counts of a reader. By one call: each object that is opened and closed is asked for them three times.
_READ: Final = attrgetter("hits", "misses", "corrupt_entries", "unverified_hits", "saved_ns", "waits")


def coerce_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a cache, with what variables say for those not given, and the policy that they state.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    path = given["path"]
    may_be_nowhere = path is None and given.get("read_only") is not False
    place = checks.resolve_path_or_nowhere if may_be_nowhere else checks.resolve_path
    coerced: dict[str, Any] = {"path": place(path)}
    variables = checks.variables_set()
    for name, (coerce, variable, unstated, otherwise) in _ARGUMENTS.items():
        value = given.get(name, unstated)
        is_stated = value is not unstated and (type(value) is not type(unstated) or value != unstated)
        found = coerce(value) if is_stated or checks.variable_key(variable) in variables else otherwise
        coerced[name] = otherwise if found == "" else found  # of a file that is not named
    return coerced


def reopen(kind: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Returns the copy of a pickled cache of this kind, whose policy is the directory's by now."""
    with checks.variables_left_alone(checks.POLICY_VARIABLES):
        return kind(**arguments)


class Parts:
    """The parts of one cache object. What a program that only reads never needs is made at its first use."""

    #: The turns of a cache for callers that only look up and store, if it is one.
    implicit: ImplicitTurns | None = None
    #: The names that this process stored, if nothing else is to be read.
    renewed: set[str] | None = None
    backing: Backing | None = None
    #: The lookups with that server.
    backed: ServedLookup | None = None
    #: Gives the counters of the directory, to be added to; ``None`` where nothing is added. Without a function: each
    #: opening asks for it.
    counting: Any = property(attrgetter("directory.counting"))
    seeded: SeedSource | None = None
    _recorder: Recorder | None = None
    _keys: KeyRing | None = None

    def __init__(self, arguments: Mapping[str, Any], directory: CacheDirectory) -> None:
        self.directory = directory
        # The names of entries that this object would have replaced, had it been allowed to.
        self._superseded: set[str] = set()
        self._arguments, self.counts = arguments, {**NOTHING_COUNTED}
        if key_file := arguments["signing_key_file"]:
            self._keys = load_keys(key_file)
        is_seeded = self._apply_rules(arguments["max_size_bytes"], arguments["priority"])
        manifest = self._find_sources()
        self._make_reader(is_seeded=is_seeded)
        if self.backed is not None and self.backing is not None:
            self.backed.serve(self.backing.store, self.writer, arguments["lease_timeout_seconds"], self.counts)
            self.backing.prefetch(manifest, self.writer, self.counts)
        others = self._recorder, None if self.backing is None else self.backing.report, self.reader.run
        counts, keep = partial(counted, self.reader, self.counts), partial(_keep_misses, directory.layout)
        reports = [each.report for each in others if each is not None]
        self.report = CountersReport(counts, self.counting, keep, reports, uses=self.reader.uses)
        self.reader.report = weakref.ref(self.report)  # which refers to the reader

    def _apply_rules(self, cap: int | None, priority: Priority | None) -> bool:
        """Bring the directory under the cap that the program states, and its seed up to date, if there is one.

        Returns whether there may be one.
        """
        directory, path = self.directory, self._arguments["seed"] or ""
        # As stated when the directory was opened, a moment ago. A seed that is attached since is the next one's.
        may_have_seed = path != "" or directory.policy.stated.policy.seed is not None
        if may_have_seed:  # first: nothing is evicted for a seed that is about to be removed, nor by the previous cap
            detach_before_cap(directory, cap)
        states_rules = cap is not None or priority is not None
        if states_rules or directory.was_counted or directory.policy.was_exceeded:
            self.counts["evictions"] += apply_policy(directory, cap, priority).entries
        if may_have_seed:
            seeding = seed_if_possible(directory, path, cap, is_signed=self._keys is not None)
            self.counts["evictions"] += seeding.evicted.entries
            # A seed for which this process waits no longer may stand before this object is gone.
            if seeding.is_awaited:
                return True
        return self._may_have_seed()

    def _may_have_seed(self) -> bool:
        layout, seed = self.directory.layout, self.directory.policy.stated.policy.seed
        if layout.is_network:
            # No seed is copied there. If the server's own processes filled the directory, the policy, which was just
            # read, names the seed: otherwise the server is not asked for the file.
            return seed is not None and has_seed(layout)
        # The policy may name a seed which is still being copied; and the page, with it, may be lost or made again.
        return (seed is not None and not seed.is_detached) or has_seed(layout)

    def _find_sources(self) -> str:
        """Find the server behind the directory, and the manifest that lists look-ups, if variables name any.

        Returns the path of the manifest.
        """
        manifest = configured_text("LOCKCACHE_MANIFEST")
        if manifest:
            from lockcache.remote.manifest import recorder_of  # few have one

            manifest = checks.configured_file("LOCKCACHE_MANIFEST")
            self._recorder = recorder_of(manifest)
        if configured_text("LOCKCACHE_REMOTE"):
            from lockcache.remote import backing_of  # few have a server

            self.backing = backing_of(self.directory, self._keys, str(self._arguments["signing_key_file"]))
        return manifest

    def _make_reader(self, *, is_seeded: bool) -> None:
        """Make the reader, and choose how this object looks up: by way of it alone, or more."""
        directory, layout, arguments, keys = self.directory, self.directory.layout, self._arguments, self._keys
        # A miss of these does more than count.
        does_more = arguments["compile_once"] or self.backing or is_seeded or self._recorder
        verified_only, kind = arguments["verified_only"], reader_of(layout)
        self.reader = kind(layout, directory.recency, keys, verified_only=verified_only, asks_first=not does_more)
        if configured_text("LOCKCACHE_RUN"):
            from lockcache.filestream.accounting import counts_of_run  # few are started by `lockcache run`

            self.reader.run = counts_of_run()
        if configured_text("LOCKCACHE_RECACHE"):
            self.renewed = renewed_keys(layout.root)
        #: Load an entry as a lookup of this object does, and from the directory and its seed alone.
        self.load: Load = self.reader.load
        self.here: Load = self.reader.load
        if does_more or self.reader.run is not None or self.renewed is not None:
            self._look_up_further(is_seeded=is_seeded)

    def _look_up_further(self, *, is_seeded: bool) -> Lookup:
        layout, renewed = self.directory.layout, self.renewed
        if is_seeded:
            self.seeded = SeedSource(layout, self.reader, self._keys)
        is_served = self.backing is not None and renewed is None
        kind = ServedLookup if is_served else Lookup
        lookup = kind(layout.entries, self.reader, self.seeded, self._recorder)
        self.here, self.load = lookup.here, lookup.load
        if isinstance(lookup, ServedLookup):
            self.backed = lookup
        if renewed is not None:
            hidden = self._superseded  # and not self, to which the lookup would refer then
            lookup.is_hidden = lambda name: name in hidden or name not in renewed
        elif self._arguments["compile_once"]:
            # Weak: turns look up by way of the object that has them here.
            lookup.implicit = self.implicit = ImplicitTurns(weakref.proxy(self.once))
        return lookup

    @AskedOnce
    def once(self) -> CompileOnce:
        """The turns of those that compute."""
        return CompileOnce(self.directory.layout, self.here, self.reader, self._arguments["lease_timeout_seconds"])

    @AskedOnce
    def writer(self) -> Writer:
        """Stores and removes: in the directory, and on the server behind it, if there is one."""
        arguments, directory = self._arguments, self.directory
        timeout, fsync, files = arguments["lock_timeout_seconds"], arguments["fsync"], arguments["record_files"]
        writer = EntryWriter(directory, timeout, fsync=fsync, use_record_files=files, keys=self._keys)
        if self.backing is None:
            return writer
        from lockcache.remote import BackedWriter  # few have a server

        return BackedWriter(writer, self.backing.store, self.backing.removed)

    @AskedOnce
    def viewer(self) -> Viewer:
        """Shows files of entries."""
        timeout, is_seeded = self._arguments["lock_timeout_seconds"], self.seeded is not None
        return Viewer(self.directory, self.writer, timeout, self.counts, self._keys, is_seeded=is_seeded)

    @AskedOnce
    def closures(self) -> ClosureFile | None:
        """The file of what headers include."""
        return ClosureFile(self.directory, self._keys)

    def recount(self) -> list[Repair]:
        """Returns the shards whose accounting was wrong, and made right."""
        return recount_all(self.directory)

    def missed(self, name: str, stated: Stated | None) -> MissedEntry:
        """Returns what is known of a key that was looked up just now and missed."""
        from lockcache.composition.missed import MissedEntry  # few are sealed

        return MissedEntry(name, stated, self.directory.layout, self._keys, is_renewing=self.renewed is not None)

    def note_miss(self, now_ns: int, name: str, stated: Stated) -> None:
        """Note a miss whose entry is about to be stored: only until then can be seen what the program found there.

        For ``lockcache why``, of programs that state what their keys are made of.
        """
        layout, replaced = self.directory.layout, ""
        if stated.parts and has_entry(layout, name):  # few have one
            from lockcache.filestream.inspect import flaw_of

            # ``$LOCKCACHE_RECACHE`` hides whole entries from the program.
            replaced = flaw_of(layout, name, self._keys) or ("renewed" if self.renewed is not None else "")
        if stated.parts:
            self.report.note((now_ns, name, stated.label, stated.parts, replaced))

    def count_dropped(self, reason: str) -> None:
        """Count a write that was dropped, and log the first. Later ones, on a disk that stays full, are not warnings.

        Nor is a drop that was asked for.
        """
        level = logging.INFO if self._arguments["read_only"] is True else logging.WARNING
        if self.counts["dropped_writes"]:
            level = logging.DEBUG
        self.counts["dropped_writes"] += 1
        path = self._arguments["path"]
        _log.log(level, "%s: a write was dropped, the program goes on without it: %s", path, reason)


def _keep_misses(layout: Layout, misses: list[tuple[Any, ...]]) -> None:
    from lockcache.filestream.inspect import Miss, add_misses_locked  # at a report, and few programs state their keys

    add_misses_locked(layout, [Miss._make(each) for each in misses])


def counted(reader: EntryReader, counts: dict[str, int]) -> Counters:
    """Returns what a reader and the ``counts`` of its cache have counted."""
    hits, misses, corrupt, unverified, saved_ns, waits = _READ(reader)
    puts, evictions, dropped, uncacheable = counts.values()
    return Counters(hits, misses, puts, evictions, dropped, corrupt, unverified, 0, 0, saved_ns, waits, uncacheable)
