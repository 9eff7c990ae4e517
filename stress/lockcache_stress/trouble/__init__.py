# SPDX-License-Identifier: Apache-2.0
"""Trouble: mounts, a failing disk, planted faults and bugs, places to run in, and hosts made of namespaces.

Promises that all of these are undone when their ``with`` block ends.

May use: errors, judge, plan, processes.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.trouble.failing_disk import has_failed, mount_failing_disk, set_failures
    from lockcache_stress.trouble.faults import BUGS, CACHE_FAULTS, FAULTS, HERD_FAULTS, Fault, plant, plant_bug
    from lockcache_stress.trouble.forgetful_disk import ForgetfulDisk, mount_forgetful_disk, sync_below
    from lockcache_stress.trouble.fuse import MOUNT_OPTIONS, Passthrough, load_mfusepy, why_no_fuse
    from lockcache_stress.trouble.mounts import copy_sparse, mounted_image, needs_mounts, quota, read_only_view
    from lockcache_stress.trouble.mounts import run_quietly, small_disk, view_of
    from lockcache_stress.trouble.namespaces import Host, made_hosts, why_no_namespaces
    from lockcache_stress.trouble.workspace import Workspace, can_mount, mounted_tmpfs, open_workspace, unmount

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
