# SPDX-License-Identifier: Apache-2.0
"""Links in ``$TRITON_CACHE_DIR`` to the views of kernels: Inductor looks there for a binary by itself.

Keeps invariant 5 (death is free): what a killed process staged is removed by the next one that links.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import deque

from lockcache.filestream import ViewPath
from lockcache.integrations.staged import reap_folder, staged_name

__all__ = ["link_for_inductor"]

# What Inductor was shown last is not evicted: it opens that when it first launches a kernel.
_for_inductor: deque[ViewPath] = deque(maxlen=64)


def link_for_inductor(key: str, view: ViewPath) -> None:
    """Have ``$TRITON_CACHE_DIR/KEY``, in which Inductor looks for a binary by itself, lead to ``view``.

    A folder that stands there is Triton's own, and stays. Where there can be no link Inductor launches as without one.
    """
    folder = os.environ.get("TRITON_CACHE_DIR")
    if not folder:
        return
    _for_inductor.append(view)
    link = f"{folder}/{key}"
    with contextlib.suppress(OSError):
        if os.readlink(link) == view:
            return
    staged = f"{folder}/{staged_name('link')}"
    _reap_links(os.getpid(), folder)
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        os.symlink(view, staged)
        try:
            os.replace(staged, link)  # raises where a folder is
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)


@functools.cache
def _reap_links(pid: int, folder: str) -> None:
    """Remove what killed processes staged there; once in a process, as there may be a link for each kernel."""
    reap_folder(folder)
