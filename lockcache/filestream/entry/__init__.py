"""One entry: its record's bytes, where the record is, reading, staging, removing, describing, judging and signing it.

Promises invariant 1 (a hit is whole) in :class:`EntryReader`, and that an entry is inspected without being used
(:func:`describe_entry`). What a record's bytes mean is decided in its codec.

May use: accounting, directory, disk, seed_marks.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.entry.codec import HEAD_BYTES, LARGEST_RECORD_BYTES, ORDINARY, XATTR
    from lockcache.filestream.entry.codec import AttributeRefusedError, Pack, Packed, Record, RecordPlacement
    from lockcache.filestream.entry.codec import as_entry, bound_with
    from lockcache.filestream.entry.codec import cost_of, digest_of, is_signed, is_understood, is_whole, pack, unpack
    from lockcache.filestream.entry.counted import CountedReads
    from lockcache.filestream.entry.describe import FLAWS, UNKNOWN, Described, Read, Statement, add_namespaces
    from lockcache.filestream.entry.describe import count_namespaces, describe_bytes, describe_entry, find_entry
    from lockcache.filestream.entry.describe import find_names, flaw_of, name_namespace, namespace_of, read_entry
    from lockcache.filestream.entry.describe import read_note, read_statement
    from lockcache.filestream.entry.locate import Prices, find_records, is_on_server
    from lockcache.filestream.entry.nearest import Nearest, Neighbour, Search, Subject, consider_all, consider_seed
    from lockcache.filestream.entry.nearest import find_nearest
    from lockcache.filestream.entry.reader import EntryReader, GuardedReader, Loader, NetworkReader, loader_of
    from lockcache.filestream.entry.removal import delete_entry, orphan_views, remove_empty_folders_locked, remove_entry
    from lockcache.filestream.entry.removal import remove_locked, remove_orphan_views_locked, remove_views_locked
    from lockcache.filestream.entry.signing import KeyRing, encode_key, load_keys, make_reader, new_key, read_key_file
    from lockcache.filestream.entry.staging import StagedEntry, reserved_bytes
    from lockcache.filestream.entry.untrusted import RefusedEntryError, refuse_unless_whole
    from lockcache.filestream.entry.verdict import CORRUPT, PASSED_OVER, UNREADABLE, UNVERIFIED, WHOLE, WRONG
    from lockcache.filestream.entry.verdict import EntryState, digest_payload, is_of_another_version, judge_entry
    from lockcache.filestream.entry.verdict import needs_payload
    from lockcache.filestream.entry.views import StagedView, ViewPath, find_view, name_view, reserved_view_bytes
else:
    __getattr__, __dir__ = door(__name__)
