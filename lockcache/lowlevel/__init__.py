# SPDX-License-Identifier: Apache-2.0
"""The documented parts of the file-stream store, for programs that inspect, keep or repair cache directories.

Programs that only cache use ``lockcache``. What is here is what ``lockcache-daemon`` and the command ``lockcache``
are built on, by the action that it is for:

- **directories**: ``Layout`` makes every path, ``CacheDirectory`` opens one (locks, accounting, policy); ``is_cache``,
  ``check_directory``, ``entry_name``, ``SHARDS``
- **policy**: ``Policy``, ``StatedPolicy``, ``Priority``; a running daemon: ``keeper_of``, ``read_status``
- **list** names and sizes: ``all_entries``, ``scan_shard``, ``count_shard``, ``find_entry``, ``find_names``, ``Found``,
  and by a filter ``Selection``, ``select_entries``
- **inspect** one entry without using it: ``describe_entry``, ``Described``, ``read_entry``, ``Read``; signed ones with
  ``load_keys``, ``KeyRing``, ``Record``
- **measure** what the disk holds, and **account**: ``measured``, ``measure_shard``, ``measure_quarantine``, ``staged``,
  ``accounted``, ``StatePage``, ``find_drift``, ``Drift``, ``Slot``, ``Counters``, ``read_counters``
- **choose** and **evict**: ``sweep``, ``Goal``, ``choose_victims``, ``remove_victims``, ``choose_selected``,
  ``evict_selected``, ``Evicted``
- **verify** and **repair**: ``verify_in_steps``, ``Verdict``, ``recount_shard``, ``recount_all``, ``reap``, ``Repair``

Keeps the invariants of ``docs/design.md`` for every caller: what is removed here is removed under its shard's lock,
after a second look, and accounted for. Not promised yet: that names and signatures stay as they are from one minor
version to the next; CHANGELOG says what changes.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream import (
        CacheDirectory as CacheDirectory,
        Policy as Policy,
        Priority as Priority,
    )
    from lockcache.filestream.accounting import (
        Found as Found,
        Slot as Slot,
        StatePage as StatePage,
        StatedPolicy as StatedPolicy,
        count_shard as count_shard,
        measure_shard as measure_shard,
        read_counters as read_counters,
        scan_shard as scan_shard,
    )
    from lockcache.filestream.disk import (
        SHARDS as SHARDS,
        Layout as Layout,
        check_directory as check_directory,
        entry_name as entry_name,
        is_cache as is_cache,
    )
    from lockcache.filestream.entry import (
        KeyRing as KeyRing,
        Record as Record,
        load_keys as load_keys,
    )
    from lockcache.filestream.eviction import (
        Evicted as Evicted,
        Goal as Goal,
        all_entries as all_entries,
        choose_victims as choose_victims,
        remove_victims as remove_victims,
        sweep as sweep,
    )
    from lockcache.filestream.inspect import (
        Described as Described,
        Drift as Drift,
        Read as Read,
        Selection as Selection,
        accounted as accounted,
        choose_selected as choose_selected,
        describe_entry as describe_entry,
        evict_selected as evict_selected,
        find_drift as find_drift,
        find_entry as find_entry,
        find_names as find_names,
        keeper_of as keeper_of,
        measured as measured,
        read_entry as read_entry,
        read_status as read_status,
        select_entries as select_entries,
        staged as staged,
    )
    from lockcache.filestream.repair import (
        Repair as Repair,
        Verdict as Verdict,
        measure_quarantine as measure_quarantine,
        reap as reap,
        recount_all as recount_all,
        recount_shard as recount_shard,
        verify_in_steps as verify_in_steps,
    )
    from lockcache.reports import Counters as Counters
else:
    __getattr__, __dir__ = door(__name__)
