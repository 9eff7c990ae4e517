# SPDX-License-Identifier: Apache-2.0
"""Registry of other programs' layouts: how a directory of each is opened, and how it is viewed without being changed.

A further layout is an implementation of :class:`.protocol.Files`, a line here, and a sign in :mod:`.recognition`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from lockcache.integrations.pyptx_directory import scan as view_pyptx
from lockcache.layouts.folders.files import FolderFiles, describe_entry as describe_folder, view_entries as view_folders
from lockcache.layouts.folders.scan import Program
from lockcache.layouts.folders.tilelang import TILELANG
from lockcache.layouts.folders.torchinductor import (
    InductorFiles,
    describe_entry as describe_inductor,
    view_entries as view_inductor,
)
from lockcache.layouts.folders.vllm import VLLM
from lockcache.layouts.folders.warp import WARP
from lockcache.layouts.protocol import Files, described
from lockcache.layouts.pyptx import PyptxGuest, describe_entry as describe_pyptx
from lockcache.layouts.recognition import WITH_ALL_IN_THEM, refuse_unless_cache
from lockcache.layouts.tree import TreeFiles, view_entries as view_tree
from lockcache.layouts.triton import TritonFiles, describe_entry as describe_triton, view_entries as view_triton
from lockcache.lowlevel import Described, Found

#: The time for files to settle, in layouts whose writers take no lock. A compiler is done with its last file in less,
#: and a program that needs all of a cap for what was written within a minute has a cap that is too small.
SETTLE_SECONDS: Final = 60.0

# Writers hold a lock for some 100 us. Short, because a signal has to be heard within a second while one hangs with it.
_LOCK_TIMEOUT_SECONDS: Final = 0.02

#: Called often during a walk; may raise to give up.
Between = Callable[[], object]


class Guest(NamedTuple):
    """One layout."""

    #: Opens a root, made if it is missing, given how long changed files have to rest before eviction. Raises what is
    #: wrong with the root.
    open_files: Callable[[str, float, Between], Files]
    #: Yields every entry of a root, and changes nothing.
    view_entries: Callable[[str, Between], Iterator[Found]]
    #: Describes an entry of a root as far as its files state. Does not count as a use.
    describe: Callable[[str, Found], Described]


def _open_pyptx(root: str, settle_seconds: float, between: Between) -> PyptxGuest:
    return PyptxGuest(root, _LOCK_TIMEOUT_SECONDS)


def _open_triton(root: str, settle_seconds: float, between: Between) -> TritonFiles:
    return TritonFiles(root, settle_seconds)


def _open_inductor(root: str, settle_seconds: float, between: Between) -> InductorFiles:
    refuse_unless_cache(root, "torchinductor")
    return InductorFiles(root, settle_seconds)


def _folders_of(program: Program) -> Guest:
    def open_folders(root: str, settle_seconds: float, between: Between) -> FolderFiles:
        if program.name in WITH_ALL_IN_THEM:
            refuse_unless_cache(root, program.name)
        return FolderFiles(program, root, settle_seconds)

    return Guest(open_folders, partial(view_folders, program), partial(describe_folder, program))


def _describe_file(root: str, found: Found) -> Described:
    return described(found)


def _open_tree(root: str, settle_seconds: float, between: Between) -> TreeFiles:
    files = TreeFiles(root, settle_seconds)
    try:
        files.refuse_unless_cache(between)
    except BaseException:
        files.close()
        raise
    return files


#: The layouts by name.
GUESTS: Final = {
    "pyptx": Guest(_open_pyptx, view_pyptx, describe_pyptx),
    "triton": Guest(_open_triton, view_triton, describe_triton),
    "warp": _folders_of(WARP),
    "tilelang": _folders_of(TILELANG),
    "vllm": _folders_of(VLLM),
    "torchinductor": Guest(_open_inductor, view_inductor, describe_inductor),
    "files": Guest(_open_tree, view_tree, _describe_file),
}
