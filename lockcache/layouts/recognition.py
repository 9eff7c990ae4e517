# SPDX-License-Identifier: Apache-2.0
"""Recognition of layouts: the program that a directory belongs to, by its files; and the directories never managed as
``files``.

Decides only if that is clear; else raises :class:`WrongLayoutError`, which names what was seen. ``files`` is never
recognised, only asked for by name: everything is a file. Home and system directories are refused before anything is
made or read in them, for every caller (:func:`refuse_unsafe_tree`). What lies deeper is refused by :mod:`.tree_scan`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import platformdirs

from lockcache.default_directory import user_cache_dir
from lockcache.errors import LockcacheError, NoDefaultDirError
from lockcache.filestream.disk import TAG_NAME, open_folder
from lockcache.integrations.pyptx_directory import guest_layout, parse_name
from lockcache.layouts.folders.tilelang import is_tilelang
from lockcache.layouts.folders.torchinductor import default_place, is_torchinductor
from lockcache.layouts.folders.vllm import is_vllm
from lockcache.layouts.folders.warp import is_warp
from lockcache.layouts.openat import folder, open_root
from lockcache.layouts.own_folder import read_name
from lockcache.layouts.tree_scan import PRECIOUS, NotACacheError
from lockcache.layouts.triton_scan import GROUP_PREFIX, is_key
from lockcache.lowlevel import Layout

# Names in an otherwise empty directory: of the file system, or of a daemon or operator that was here first.
_MEANS_NOTHING: Final = ("lost+found", "lockcache", "tmp", TAG_NAME)
_MEANS_NOTHING_PREFIX: Final = ".nfs"

# Entries that are looked at for a record. cuda.core writes none, lockcache never omits it.
_SAMPLE_ENTRIES: Final = 16
_RECORD: Final = "user.lockcache"


#: The layouts of directories that have caches of others in them ...
WITH_ALL_IN_THEM: Final = ("files", "torchinductor", "vllm")
# ... and how deep those are.
_MOST_ABOVE: Final = 6


class WrongLayoutError(LockcacheError):
    """The directory is plainly of another layout than the operator named, or it is unclear of which it is."""


def recognise(root: str) -> tuple[str, list[str]]:
    """Returns the layout of ``root``, and the other layouts whose files there will not be kept.

    Raises :class:`WrongLayoutError` where nothing is clear, and :class:`OSError` for a directory that cannot be read.
    """
    refuse_parts(root)
    guests = guests_in(root)
    if has_entries(root) or os.path.lexists(Layout(root).state):
        return _whose_entries(root), guests
    if len(guests) > 1:
        raise WrongLayoutError(
            f"{root} holds files of {' and of '.join(guests)}; say with --layout which of them to keep"
        )
    if guests:
        _refuse_unless_its_own(root, guests[0])
        return guests[0], []
    if read_name(root) == "files":
        raise WrongLayoutError(f"{root} was kept as files before; that is never guessed: say --layout files again")
    _refuse_strangers(root)
    layout = _by_place(root)
    _refuse_unless_its_own(root, layout)
    return layout, []


def _refuse_unless_its_own(root: str, layout: str) -> None:
    if layout in WITH_ALL_IN_THEM:
        refuse_unless_cache(root, layout)


def refuse_parts(root: str) -> None:
    """Refuse a folder in a directory of lockcache's: kept by itself, its files would be nobody's.

    Refuses one in a directory that is kept with all that is in it, too: it would be counted and evicted twice. Raises
    :class:`WrongLayoutError`.
    """
    real = os.path.realpath(root)
    for above in list(Path(real).parents)[:_MOST_ABOVE]:
        with contextlib.suppress(OSError):  # of somebody else, who keeps nothing of this user's
            if (name := read_name(str(above))) in WITH_ALL_IN_THEM:
                raise WrongLayoutError(f"{root} lies in {above}, which is kept as {name} with all in it: use that")
        layout = Layout(str(above))
        parts = (layout.entries, layout.own, layout.tmp)
        if os.path.lexists(layout.state) and f"{real}/".startswith(tuple(f"{part}/" for part in parts)):
            raise WrongLayoutError(f"{root} is a part of the cache in {above}: use that directory")


def kept_as(root: str) -> str:
    """Returns the layout of ``root`` for showing or removing entries: also ``files``, if a daemon kept it as such.

    Raises as :func:`recognise`.
    """
    try:
        return recognise(root)[0]
    except WrongLayoutError:
        if read_name(root) != "files" or has_entries(root) or guests_in(root):
            raise
        return "files"


def _by_place(root: str) -> str:
    """Returns which program will fill an empty directory: on a new node the daemon starts before that program."""
    places = {
        "triton": os.environ.get("TRITON_CACHE_DIR") or "~/.triton/cache",
        "pyptx": os.environ.get("PYPTX_CACHE_DIR") or _default_of("pyptx"),
        "warp": os.environ.get("WARP_CACHE_PATH") or _default_of("warp"),
        "tilelang": os.environ.get("TILELANG_CACHE_DIR") or "~/.tilelang/cache",
        "vllm": f"{os.environ.get('VLLM_CACHE_ROOT') or _default_of('vllm')}/torch_compile_cache",
        "torchinductor": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default_place(),
    }
    here = os.path.realpath(root)
    for layout, place in places.items():
        if place and os.path.realpath(os.path.expanduser(place)) == here:
            return layout
    return "lockcache"


def _default_of(program: str) -> str:
    """Returns the folder of a program in the user cache directory; empty where there is none."""
    try:
        return user_cache_dir(program, "")
    except NoDefaultDirError:
        return ""


def guests_in(root: str) -> list[str]:
    """Returns the layouts of other programs that have or had files in ``root``."""
    return [name for name, is_there in _GUESTS if is_there(root)]


def has_entries(root: str) -> bool:
    """Returns whether entries of lockcache or cuda.core are here."""
    return next(_entries(root), None) is not None


def _has_groups(root_fd: int) -> bool:
    with os.scandir(root_fd) as found:
        return any(is_key(each.name) and _has_group(root_fd, each.name) for each in found)


def _is_kept_as(name: str, is_there: Callable[[int], bool], root: str) -> bool:
    """Returns whether what a program compiled is here, or was."""
    if read_name(root) == name:
        return True
    with _opened(root) as fd:
        return fd is not None and is_there(fd)


def _is_pyptx(root: str) -> bool:
    """Returns whether entries of pyptx are here, or were: the adapter's folder for staged files outlives them."""
    if os.path.isdir(guest_layout(root).tmp) and read_name(root) in ("", "pyptx"):
        return True
    return any(parse_name(name) is not None for name in _names(root))


_KEPT: Final = (
    ("triton", _has_groups),
    ("warp", is_warp),
    ("tilelang", is_tilelang),
    ("vllm", is_vllm),
    ("torchinductor", is_torchinductor),
)
_GUESTS: Final[tuple[tuple[str, Callable[[str], bool]], ...]] = (
    ("pyptx", _is_pyptx),
    *((name, partial(_is_kept_as, name, is_there)) for name, is_there in _KEPT),
)


def _whose_entries(root: str) -> str:
    """Returns whose entries these are, lockcache's or cuda.core's, for people: both are kept alike."""
    sample = list(islice(_entries(root), _SAMPLE_ENTRIES))
    for path in sample:
        with contextlib.suppress(OSError):  # no such attribute, none at all here, or evicted since
            os.getxattr(path, _RECORD, follow_symlinks=False)
            return "lockcache"
    return "lockcache" if not sample or os.path.isdir(Layout(root).records) else "cuda.core"


def _entries(root: str) -> Iterator[str]:
    for shard in _names(root, "entries"):
        for name in _names(root, "entries", shard):
            yield f"{Layout(root).entries}/{shard}/{name}"


def _refuse_strangers(root: str) -> None:
    for name in _names(root):
        if name not in (*_MEANS_NOTHING, "entries") and not name.startswith(_MEANS_NOTHING_PREFIX):
            raise WrongLayoutError(
                f"{root} contains {name}, which does not look like any supported cache; if the directory is right, "
                "name its --layout (lockcache: in folders of its own, next to the other files)"
            )


def _has_group(root_fd: int, key: str) -> bool:
    with folder(root_fd, key) as fd:
        return fd is not None and any(name.startswith(GROUP_PREFIX) for name in os.listdir(fd))


def _names(root: str, *below: str) -> Iterator[str]:
    # Nothing was checked yet: a symlink below the root may lead anywhere.
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        open_folder(root, *below) as fd,
        os.scandir(fd) as found,
    ):
        for each in found:
            yield each.name


@contextlib.contextmanager
def _opened(root: str) -> Iterator[int | None]:
    fd = -1
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        fd = open_root(root)
    try:
        yield None if fd < 0 else fd
    finally:
        if fd >= 0:
            os.close(fd)


_SYSTEM: Final = (
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc",
    "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/cache", "/var/lib", "/var/log", "/var/tmp",
)  # fmt: skip
# Directories that belong, with all below them, to the system.
_SYSTEM_TREES: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
# But memory that programs share is where some keep a cache.
_SHARED_MEMORY: Final = "/dev/shm"


def refuse_unless_cache(root: str, layout: str = "files") -> None:
    """Raises :class:`NotACacheError` for a directory that holds more than a cache could, or to which others lead."""
    why = describe_danger(root) or _describe_link(root)
    if why:
        does = "any file in it" if layout == "files" else "files in it as if they were a cache's"
        raise NotACacheError(
            f"{root} {why}: --layout {layout} evicts {does}. Name the directory that a program keeps for nothing but "
            "its cache"
        )


def _describe_link(root: str) -> str:
    """Returns that a root is a link that someone else made, in a folder such as /tmp: it may lead anywhere."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        status = os.lstat(root.rstrip("/") or "/")
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            return f"is a symlink of user {status.st_uid}"
    return ""


def describe_danger(root: str) -> str:
    """Returns why a directory holds more than one program's cache, as what is said of it; empty if it may be one."""
    real = Path(os.path.realpath(root))
    if str(real) in _SYSTEM or _is_in_a_system_tree(real):
        return "is the system's"
    if real.parent == Path("/home"):
        return "is a home directory"
    for place, name in _homes():
        if real == place or real in place.parents:
            return f"is {name}, or holds it"
    for precious in sorted(PRECIOUS):
        if os.path.lexists(real / precious):
            return f"holds {precious}"
    return ""


def _is_in_a_system_tree(real: Path) -> bool:
    if real.is_relative_to(_SHARED_MEMORY):
        return real == Path(_SHARED_MEMORY)
    return any(real.is_relative_to(tree) for tree in _SYSTEM_TREES)


def _homes() -> list[tuple[Path, str]]:
    """Returns the folders in which people and all of their programs keep files, with their names in words."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    dirs, found = platformdirs.PlatformDirs(), [(home, "your home directory")]
    for name in ("user_cache_dir", "user_config_dir", "user_data_dir", "user_state_dir"):
        with contextlib.suppress(RuntimeError):  # a user without a home
            found.append((Path(os.path.realpath(getattr(dirs, name))), "where all programs of a user keep files"))
    return found
