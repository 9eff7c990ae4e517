"""Trouble: mounts, a failing disk, planted faults and bugs, places to run in, and hosts made of namespaces.

Promises that all of these are undone when their ``with`` block ends.

May use: errors, judge, plan, processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.trouble.failing_disk import *
    from lockcache_stress.trouble.faults import *
    from lockcache_stress.trouble.fuse import *
    from lockcache_stress.trouble.mounts import *
    from lockcache_stress.trouble.namespaces import *
    from lockcache_stress.trouble.workspace import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "faults": "BUGS CACHE_FAULTS Fault FAULTS HERD_FAULTS plant plant_bug",
            "failing_disk": "has_failed mount_failing_disk set_failures",
            "fuse": "MOUNT_OPTIONS Passthrough load_mfusepy why_no_fuse",
            "mounts": "copy_sparse mounted_image needs_mounts quota read_only_view run_quietly small_disk view_of",
            "namespaces": "Host made_hosts why_no_namespaces",
            "workspace": "Workspace can_mount mounted_tmpfs open_workspace unmount",
        },
    )
