# SPDX-License-Identifier: Apache-2.0
"""One entry: its record's bytes, where the record is, reading, staging, removing, judging and signing it.

Promises invariant 1 (a hit is whole) in :class:`EntryReader`. What a record's bytes mean is decided in its codec.

May use: accounting, directory, disk, seed_marks.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.entry.codec import HEAD_BYTES, LARGEST_NOTE_BYTES, LARGEST_RECORD_BYTES, NOTE_XATTR
    from lockcache.filestream.entry.codec import ORDINARY, XATTR, AttributeRefusedError, Pack, Packed, Record
    from lockcache.filestream.entry.codec import RecordPlacement, as_entry, bound_with, cost_of, digest_of
    from lockcache.filestream.entry.codec import has_whole_tail, is_known, is_record, is_signed, is_understood, is_whole
    from lockcache.filestream.entry.codec import may_have, pack, unpack
    from lockcache.filestream.entry.locate import NO_ATTRIBUTE, Prices, find_records
    from lockcache.filestream.entry.reader import EntryReader, Load, reader_of
    from lockcache.filestream.entry.removal import orphan_views, remove_empty_folders_locked, remove_entry
    from lockcache.filestream.entry.removal import remove_locked, remove_orphan_views_locked
    from lockcache.filestream.entry.removal import remove_views_locked, unlink_counted
    from lockcache.filestream.entry.signing import KeyRing, encode_key, load_keys, new_key, read_key_file
    from lockcache.filestream.entry.staging import OtherPolicyError, StagedEntry
    from lockcache.filestream.entry.untrusted import RefusedEntryError, refuse_unless_whole
    from lockcache.filestream.entry.verdict import CORRUPT, PASSED_OVER, UNREADABLE, UNVERIFIED, WHOLE, WRONG
    from lockcache.filestream.entry.verdict import EntryState, digest_payload, is_of_another_version, judge_entry
    from lockcache.filestream.entry.verdict import needs_payload
    from lockcache.filestream.entry.views import StagedView, ViewPath, find_view, name_view
else:
    __getattr__, __dir__ = door(__name__)
