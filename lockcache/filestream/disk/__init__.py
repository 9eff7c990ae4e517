# SPDX-License-Identifier: Apache-2.0
"""Linux, and nothing of caches: names, files, folders, locks, wake-ups, owners, mounts, permissions.

Promises that every name in a cache directory is made and parsed in one place (:class:`Layout`), that what is made has a
safe mode and follows no symlink, that a lock is waited for only so long, and that live owners are distinguished from
dead ones.

May use: nothing else of the package.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.disk.descriptors import DISK_FULL, FOLDER, NOATIME, READ, UPDATE, WRITE, Descriptor
    from lockcache.filestream.disk.descriptors import KeptDescriptor, close_inherited, close_quietly, opened, opening
    from lockcache.filestream.disk.files import TAG_NAME, age_seconds_of, append_below, fsync_folder_of, is_alone
    from lockcache.filestream.disk.files import READ_ANYHOW_BYTES, is_at, is_hole
    from lockcache.filestream.disk.files import leave_tag, naming, parse_json, read_all, read_json, read_small
    from lockcache.filestream.disk.files import remove_files
    from lockcache.filestream.disk.files import replace_file, replacing, truncate_below, write_all
    from lockcache.filestream.disk.folders import PRIVATE_FILE, Folder, PlantedFolderError, create_shared, is_shared
    from lockcache.filestream.disk.folders import make_private_folder
    from lockcache.filestream.disk.folders import open_folder, refuse_symlink, share_file
    from lockcache.filestream.disk.holds import Hold, Mark
    from lockcache.filestream.disk.layout import FORMAT_MAGIC, FORMAT_VERSION, SHARDS, GuestLayout, Layout
    from lockcache.filestream.disk.layout import QuarantinedName, StagedName
    from lockcache.filestream.disk.layout import ViewName, entry_name, is_entry_file, next_serial
    from lockcache.filestream.disk.layout import parse_quarantined_name
    from lockcache.filestream.disk.layout import parse_staged_name, parse_view_name, version_of
    from lockcache.filestream.disk.locks import ProcessLock, ShardLocks
    from lockcache.filestream.disk.mounts import FRESH_SECONDS, NO_OTHERS, FuseHosts, Hosts, Mount, Nfs3Hosts, NfsHosts
    from lockcache.filestream.disk.mounts import is_fresh, is_kind, is_network, is_network_mount
    from lockcache.filestream.disk.mounts import mount_of
    from lockcache.filestream.disk.owners import FOREIGN_GRACE_SECONDS, YOUNG_SECONDS, Owner, forget_given_up, give_up
    from lockcache.filestream.disk.owners import is_abandoned, is_alive, is_given_up, myself, staged_path
    from lockcache.filestream.disk.permissions import PRIVATE, Sharing, check_directory, check_folders, check_format
    from lockcache.filestream.disk.permissions import denial, make_root, nearest_seen, ownership
    from lockcache.filestream.disk.permissions import is_cache, refuse_newer, resolve_sharing, user_name
    from lockcache.filestream.disk.reach import BY_PATH, Reach
    from lockcache.filestream.disk.recency import ReadRecency, Recency, UnstatedRecency, last_use_ns
    from lockcache.filestream.disk.recency import present_ns, restate
    from lockcache.filestream.disk.space import SPACES, Space, is_sane, probe_space
    from lockcache.filestream.disk.waiting import LOCAL, REMOTE, WOKEN, Pace, Waiter, ring
else:
    __getattr__, __dir__ = door(__name__)
