# SPDX-License-Identifier: Apache-2.0
"""Import of an existing Triton cache: its kernels, launchers and results become entries that the adapter finds.

Changes nothing in Triton's directory, follows no symlink in it, and reads no more of a file than a bound. What Triton
has not finished, or what is damaged, is left out. The least recently used come first, so that a cap keeps those used
last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from lockcache.composition import FileStreamProgramCache
from lockcache.filestream.disk import parse_json
from lockcache.integrations.adapter import Shared
from lockcache.integrations.triton import describe_metadata, stored_name
from lockcache.layouts.openat import folder, opened_root, read_in
from lockcache.layouts.triton_scan import GROUP_PREFIX, KeyFolder, scan

# No file of a kernel is nearly as long.
_LARGEST_BYTES: Final = 256 << 20

#: The outcomes for entries: ``imported``, ``present`` already, ``damaged``, ``dropped`` (no room), or of no known
#: ``version`` of Triton.
Outcomes = Counter[str]


def import_triton(
    root: str,
    cache: FileStreamProgramCache | None,
    version: str,
    advance: Callable[[int], object],
    *,
    is_dry_run: bool = False,
) -> Outcomes:
    """Take over the Triton cache in ``root``. ``is_dry_run``: only count, without ``cache`` as for an empty one.

    ``version`` is that of launchers and results, which state none; empty: that of the last kernel. Raises
    :class:`OSError`.
    """
    outcomes, adapters = Outcomes(), dict[str, Shared]()
    with opened_root(root) as fd:
        found = sorted((key for key in scan(fd) if key.is_entry), key=lambda key: key.found)
        groups = [(key, name) for key in found for name in key.groups]
        # Files next to a group that are not in it are damage, or a user's own.
        alone = [(key, name) for key in found if not key.groups for name, _ in key.files]
        for key, name in [*groups, *alone]:
            files = _read_group(fd, key, name) if name.startswith(GROUP_PREFIX) else _read(fd, key, [name])
            stored_as = name.removeprefix(GROUP_PREFIX)
            metadata = describe_metadata((files or {}).get(stored_as, b""))
            own_version = metadata.get("compiler", "").removeprefix("triton ")
            version = version or own_version
            if not files:
                outcomes["damaged"] += 1
            elif not version:
                outcomes["version"] += 1
            elif cache is None:
                outcomes["imported"] += 1
            else:
                shared = adapters.setdefault(own_version or version, Shared("triton", own_version or version, cache))
                name_there = stored_name(key.found.name, stored_as)
                if shared.look_at_files(name_there) is not None:
                    outcomes["present"] += 1
                else:
                    store = partial(shared.store_files, name_there, files, None, **metadata)
                    outcomes["imported" if is_dry_run else outcome_of(shared, store)] += 1
            advance(1)
    return outcomes


def outcome_of(shared: Shared, store: Callable[[], object]) -> str:
    """Call ``store()``. Returns its outcome: ``imported`` or ``dropped``."""
    before = shared.cache.stats().dropped_writes
    store()
    return "dropped" if shared.has_failed or shared.cache.stats().dropped_writes > before else "imported"


def _members(root_fd: int, key: KeyFolder, group: str) -> list[str]:
    """Returns the names that a group file lists, of files that are there; none if one of them is not."""
    try:
        paths = parse_json((_read(root_fd, key, [group]) or {}).get(group, b""))["child_paths"]
        names = [str(name) for name in paths]
    except (ValueError, LookupError, TypeError):
        return []
    return names if {*names} <= {name for name, _ in key.files} else []


def _read_group(root_fd: int, key: KeyFolder, group: str) -> dict[str, bytes] | None:
    names = _members(root_fd, key, group)
    return _read(root_fd, key, names) if group.removeprefix(GROUP_PREFIX) in names else None


def _read(root_fd: int, key: KeyFolder, names: list[str]) -> dict[str, bytes] | None:
    """Read the files found, each with its inode. Returns ``None`` if one is gone, replaced, empty or too large."""
    inodes, files = dict(key.files), dict[str, bytes]()
    with folder(root_fd, key.found.name) as fd:
        if fd is None:
            return None
        for name in names:
            content = read_in(fd, name, inodes.get(name, 0), _LARGEST_BYTES)
            if not content:
                return None
            files[name] = content
    return files
