# SPDX-License-Identifier: Apache-2.0
"""The folders below a root that match a pattern, level by level: each level is reached by descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from lockcache.integrations.kept_folders.contents import opened_folder
from lockcache.integrations.kept_folders.pattern import Pattern

__all__ = ["matching_levels", "opened_path"]


def matching_levels(root_fd: int, pattern: Pattern) -> Iterator[list[str]]:
    """Yields the paths of each level that match, from the root itself, which is empty, to the folders of the pattern.

    A level is listed when the next one is asked for. What cannot be listed has nothing in it.
    """
    paths = [""]
    yield paths
    for depth in range(1, len(pattern.levels) + 1):
        partial = pattern._replace(levels=pattern.levels[:depth])
        below = [f"{path}/{name}" if path else name for path in paths for name in _folders_in(root_fd, path)]
        paths = [path for path in below if partial.matches(path)]
        yield paths


def opened_path(root_fd: int, path: str) -> contextlib.AbstractContextManager[int]:
    """A block with a descriptor of a folder below the root, or of the root. Raises :class:`OSError`."""
    return opened_folder(root_fd, *filter(None, path.split("/")))


def _folders_in(root_fd: int, path: str) -> list[str]:
    with contextlib.suppress(OSError), opened_path(root_fd, path) as folder_fd, os.scandir(folder_fd) as entries:
        return [each.name for each in entries if each.is_dir(follow_symlinks=False)]
    return []
