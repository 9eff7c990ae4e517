# SPDX-License-Identifier: Apache-2.0
"""Every file name of a cache directory, made and parsed in one place.

Decides: key -> name -> shard -> path, staged names and their parser, the format version. Keeps the promise that a
directory filled by cuda.core's own cache is a valid lockcache directory and the reverse (same names for the same
keys), and that nothing found on disk is trusted for its name: what these parsers refuse is not an entry.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from lockcache.asked_once import AskedOnce
from lockcache.filestream.disk.folders import is_shared
from lockcache.filestream.disk.mounts import hosts_of
from lockcache.filestream.disk.reach import FromRoot, reach_of

if TYPE_CHECKING:
    from lockcache.filestream.disk.space import Space

#: What this version writes into ``lockcache/state``; a directory with a larger number is refused.
FORMAT_VERSION: Final = 3
#: What that file begins with; the version is the next byte.
FORMAT_MAGIC: Final = b"LCstate"

#: One per leading byte of a name. Sized so that 16 writers rarely meet (6 %) and that a shard of a million-entry cache
#: (4,000 files) is still walked in some 12 ms.
SHARDS: Final = 256

# Looked up once, for the read path.
_sha256 = hashlib.sha256

#: Tells whether a file found in a shard directory may be an entry (62 hex digits). Asked of each file in it.
is_entry_file: Final = re.compile(r"[0-9a-f]{62}", re.ASCII).fullmatch
_STAGED_FILE: Final = re.compile(
    r"([0-9a-f]{2})\.([0-9]{1,19})\.([0-9a-f]{16})\.([0-9]{1,10})\.([0-9]{1,12})\.([0-9a-f]{1,16})", re.ASCII
)
_QUARANTINED_FILE: Final = re.compile(
    r"([0-9]{8}T[0-9]{6}\.[0-9]{9}Z)-([0-9a-f]{64})-([a-z]{1,16})(\.record)?", re.ASCII
)
_VIEW_FOLDER: Final = re.compile(r"([0-9a-f]{62})\.([0-9a-f]{32})\.([0-9]{1,19})", re.ASCII)

#: Returns a number that no other staged file of this process has.
next_serial: Final[Callable[[], int]] = itertools.count().__next__


def entry_name(key: bytes) -> str:
    """Returns the name of a key's entry: sha256 in 64 hex digits. The first two are its shard."""
    return _sha256(key, usedforsecurity=False).hexdigest()


#: Returns the name of a staged file, of the fields of a :class:`StagedName`: for writers, of whom each makes one.
name_staged: Final = "{:02x}.{}.{}.{}.{}.{:x}".format


class StagedName(NamedTuple):
    """The name of a staged file, by which any process can account for it and tell whether its owner lives."""

    shard: int
    #: Bytes reserved for the entry, its record file included, as they count (:mod:`.space`).
    size_bytes: int
    #: Token of the host and process namespace in which ``pid`` means something; see :mod:`.owners`.
    host: str
    pid: int
    #: When the owner started, in ticks since the boot: tells it from a later process with its pid.
    start_ticks: int
    #: Distinguishes the staged files of one process.
    serial: int

    @property
    def is_own_file(self) -> bool:
        """Whether this is a page or a status being replaced (or a record in shard 0, as small)."""
        return self.shard == 0 and self.size_bytes == 0

    def __str__(self) -> str:
        return name_staged(*self)


def version_of(state: bytes) -> int:
    """Returns the format that ``lockcache/state`` states in its first bytes; 0 for damage, or something else."""
    return state[len(FORMAT_MAGIC)] if state.startswith(FORMAT_MAGIC) and len(state) > len(FORMAT_MAGIC) else 0


def parse_staged_name(file_name: str) -> StagedName | None:
    """Returns the inverse of ``str(StagedName)``; ``None`` for any other file (cuda.core stages there too)."""
    match = _STAGED_FILE.fullmatch(file_name)
    if match is None:
        return None
    shard, size, host, pid, start, serial = match.groups()
    if int(size) >= 2**63:
        return None  # no cap allows it, and the accounting could not hold it
    return StagedName(int(shard, 16), int(size), host, int(pid), int(start), int(serial, 16))


class QuarantinedName(NamedTuple):
    """The name of a file in quarantine: when it was put there, which entry it was, and what was wrong with it."""

    #: UTC, to the nanosecond, such as ``20261121T170102.123456789Z``: the order of names is the order of arrival.
    when: str
    entry: str
    #: One word.
    wrong: str
    #: Whether it is the entry's record file.
    is_record: bool = False

    @property
    def shard(self) -> int:
        return int(self.entry[:2], 16)

    def __str__(self) -> str:
        return f"{self.when}-{self.entry}-{self.wrong}{'.record' if self.is_record else ''}"


def parse_quarantined_name(file_name: str) -> QuarantinedName | None:
    """Returns the inverse of ``str(QuarantinedName)``; ``None`` for any other file."""
    match = _QUARANTINED_FILE.fullmatch(file_name)
    if match is None:
        return None
    when, entry, wrong, record = match.groups()
    return QuarantinedName(when, entry, wrong, record is not None)


class ViewName(NamedTuple):
    """The name of a view's folder: the entry, the digest of its files, and the bytes that it counts for."""

    entry: str
    #: The digest of the files' names and bytes, in 32 hex digits: two versions of an entry have two views.
    digest: str
    #: The bytes that it counts for (:mod:`.space`), its folder included, so that measuring need not look into it.
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.entry[2:]}.{self.digest}.{self.size_bytes}"


def parse_view_name(shard: int, folder_name: str) -> ViewName | None:
    """Returns the inverse of ``str(ViewName)``, for a folder among the views of a shard; ``None`` for anything else."""
    match = _VIEW_FOLDER.fullmatch(folder_name)
    if match is None or int(match[3]) >= 2**63:
        return None
    return ViewName(f"{shard:02x}{match[1]}", match[2], int(match[3]))


class Layout:
    """The paths of one cache directory, as plain strings: the read path builds one with a single format expression."""

    #: Whether other hosts may change the directory, and this one's kernel remembers what it saw there. A property
    #: without a function: each put asks for it.
    is_network = property(attrgetter("hosts.is_network"))
    #: The way to what is below the root. Raises :class:`OSError` where the root has to be asked and is missing.
    reach = AskedOnce(reach_of)
    #: The other hosts that may change what is there.

    #: The other hosts that may change what is there.
    hosts = AskedOnce(hosts_of)

    def __init__(self, root: str, *, is_shared: bool | None = None) -> None:
        """``is_shared``: the value of :attr:`is_shared`, if the caller knows it; else the root is asked."""
        if is_shared is not None:
            self.__dict__["is_shared"] = is_shared
        self.root = root
        #: The sizes that files count for, once they were asked for: :func:`.space.space_of`.
        self.space: Space | None = None
        # Written out: os.path.join is 0.5 us, and each opening would call it 23 times.
        base = root.rstrip("/")
        self.entries = f"{base}/entries"
        self.tmp = f"{base}/tmp"
        self.own = own = f"{base}/lockcache"
        self.records = f"{own}/records"
        self.views = f"{own}/views"
        self.locks = locks = f"{own}/locks"
        self.leases = f"{own}/leases"
        self.quarantine = f"{own}/quarantine"
        self.scrub = f"{own}/scrub"
        self.closures = f"{own}/closures"
        self.remote = f"{own}/remote"
        self.misses = f"{own}/misses"
        self.runs = f"{own}/runs"
        self.seed = f"{own}/seed.lcb"
        self.state = f"{own}/state"
        self.pins = f"{own}/pins"
        self.directory_lock = f"{locks}/directory"
        self.seed_lock = f"{locks}/seed"
        self.room_lock = f"{locks}/room"
        self.room_queue = f"{locks}/room.queue"
        self.room_bell = f"{locks}/room.bell"
        self.daemon_lock = f"{own}/daemon.lock"
        self.daemon_status = f"{own}/daemon.json"

    @AskedOnce
    def is_shared(self) -> bool:
        """Returns whether a group may write to the root, and swap any folder below it at any moment."""
        return is_shared(self.root)

    def directories(self) -> tuple[str, ...]:
        """Returns all directories that must exist before a first write, parents first."""
        return self.root, self.entries, self.tmp, self.own, self.locks

    def entry(self, name: str) -> str:
        return f"{self.entries}/{name[:2]}/{name[2:]}"

    def entry_shard(self, shard: int) -> str:
        return f"{self.entries}/{shard:02x}"

    def record(self, name: str) -> str:
        return f"{self.records}/{name[:2]}/{name[2:]}"

    def record_shard(self, shard: int) -> str:
        return f"{self.records}/{shard:02x}"

    def view(self, view: ViewName) -> str:
        return f"{self.views}/{view.entry[:2]}/{view}"

    def view_shard(self, shard: int) -> str:
        return f"{self.views}/{shard:02x}"

    def shard_folders(self, shard: int) -> tuple[str, str, str]:
        """Returns the folders of a shard: of its entries, of its record files, of its views."""
        folder = f"/{shard:02x}"
        return self.entries + folder, self.records + folder, self.views + folder

    def lease(self, name: str, generation: int) -> str:
        return f"{self.leases}/{name}.{generation}"

    def bell(self, name: str) -> str:
        """Returns the path of an entry's bell: one for all generations of its lease."""
        return f"{self.leases}/{name}.bell"

    def lock(self, shard: int) -> str:
        return f"{self.locks}/{shard:02x}"


class GuestLayout(Layout):
    """The paths in another program's directory, of which only ``lockcache/`` is lockcache's."""

    def __init__(self, root: str) -> None:
        super().__init__(root, is_shared=False)  # one that is shared is refused
        self.reach = FromRoot(root)
        # It is not accounted for: its state is the policy alone.
        self.state = f"{self.own}/policy"
