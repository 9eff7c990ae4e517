"""Linux, and nothing of caches: names, files, folders, locks, wake-ups, owners, mounts, permissions.

Promises that every name in a cache directory is made and parsed in one place (:class:`Layout`), that what is made has a
safe mode and follows no symlink, that a lock is waited for only so long, and that live owners are distinguished from
dead ones.

May use: nothing else of the package.
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.disk.descriptors import *
    from lockcache.filestream.disk.files import *
    from lockcache.filestream.disk.folders import *
    from lockcache.filestream.disk.layout import *
    from lockcache.filestream.disk.locks import *
    from lockcache.filestream.disk.mounts import *
    from lockcache.filestream.disk.output import *
    from lockcache.filestream.disk.owners import *
    from lockcache.filestream.disk.permissions import *
    from lockcache.filestream.disk.recency import *
    from lockcache.filestream.disk.recognise import *
    from lockcache.filestream.disk.space import *
    from lockcache.filestream.disk.wakeups import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "wakeups": "Queue Sleeper Woken bell_of grant ring wake_next",
            "descriptors": "DISK_FULL Descriptor FOLDER NOATIME READ UPDATE WRITE close_inherited close_quietly opened",
            "files": (
                "TAG_NAME age_seconds_of append_below fsync_folder_of is_alone leave_tag naming parse_json read_json "
                "read_small remove_files replace_file replacing truncate_below write_all"
            ),
            "folders": (
                "PlantedFolderError below create_below is_shared make_folder make_private_folder "
                "open_below open_folder open_or_create refuse_symlink rename_below revalidate revalidate_shard_locked "
                "share_file unlink_below"
            ),
            "layout": (
                "FORMAT_VERSION Layout QuarantinedName SHARDS StagedName ViewName entry_name is_entry_file "
                "next_serial parse_quarantined_name parse_staged_name parse_view_name"
            ),
            "locks": "Hold Mark ProcessLock ShardLocks",
            "mounts": "FRESH_SECONDS Mount is_fresh is_kind is_network is_network_mount mount_of",
            "output": "Turn WAIT_FOR_TURN_SECONDS open_output turn_to_replace",
            "owners": (
                "FOREIGN_GRACE_SECONDS Owner YOUNG_SECONDS forget_given_up give_up is_abandoned "
                "is_alive is_given_up myself"
            ),
            "permissions": (
                "PRIVATE Sharing check_directory check_folders check_format check_root denial make_root "
                "nearest_seen ownership resolve_sharing user_name"
            ),
            "recency": "ReadRecency Recency UnstatedRecency last_use_ns",
            "recognise": "is_cache",
            "space": "Space encode_format probe_space space_of stated_space",
        },
    )
