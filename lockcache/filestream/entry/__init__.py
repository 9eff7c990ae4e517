"""One entry: its record's bytes, where the record is, reading, staging, removing, describing, judging and signing it.

Promises invariant 1 (a hit is whole) in :class:`EntryReader`, and that an entry is inspected without being used
(:func:`describe_entry`). What a record's bytes mean is decided in its codec.

May use: accounting, directory, disk, seed_marks.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.entry.codec import *
    from lockcache.filestream.entry.counted import *
    from lockcache.filestream.entry.describe import *
    from lockcache.filestream.entry.locate import *
    from lockcache.filestream.entry.nearest import *
    from lockcache.filestream.entry.reader import *
    from lockcache.filestream.entry.removal import *
    from lockcache.filestream.entry.signing import *
    from lockcache.filestream.entry.staging import *
    from lockcache.filestream.entry.untrusted import *
    from lockcache.filestream.entry.verdict import *
    from lockcache.filestream.entry.views import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "codec": (
                "AttributeRefusedError HEAD_BYTES LARGEST_RECORD_BYTES ORDINARY Record RecordPlacement XATTR as_entry "
                "bound_with cost_of digest_of is_signed is_understood is_whole pack unpack"
            ),
            "describe": (
                "Described FLAWS Read Statement UNKNOWN add_namespaces count_namespaces describe_bytes describe_entry "
                "find_entry find_names flaw_of name_namespace namespace_of read_entry read_note read_statement"
            ),
            "locate": "Prices find_records is_on_server",
            "nearest": "Nearest Neighbour Search Subject consider_all consider_seed find_nearest",
            "counted": "CountedReads",
            "reader": "EntryReader GuardedReader Loader NetworkReader loader_of",
            "removal": (
                "delete_entry orphan_views remove_empty_folders_locked remove_entry remove_locked "
                "remove_orphan_views_locked remove_views_locked"
            ),
            "signing": "KeyRing encode_key load_keys make_reader new_key read_key_file",
            "staging": "StagedEntry reserved_bytes",
            "views": "StagedView ViewPath find_view name_view reserved_view_bytes",
            "verdict": (
                "CORRUPT EntryState PASSED_OVER UNREADABLE UNVERIFIED WHOLE WRONG digest_payload is_of_another_version "
                "judge_entry needs_payload"
            ),
            "untrusted": "RefusedEntryError refuse_unless_whole",
        },
    )
