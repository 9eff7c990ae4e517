# SPDX-License-Identifier: Apache-2.0
"""Space: what files and folders take on disk, in blocks. The unit of all accounting.

Decides what a file counts for: its length rounded up to the block, an inode where the file system makes those as it
goes (xfs), and one block more where its attributes did not fit into the inode (ext4: 60 bytes do, 100 do not). Never
counts what the file system reports at the moment, except for that last block: allocation is delayed, compressed or
cached, and the bytes reserved before a write must equal those given back after it.

A directory states these numbers in the head of ``lockcache/state`` when it is made, and all programs count by what it
states, so that two that see the file system differently (a container, another host) still agree. Where nothing is
stated, in a directory that only cuda.core wrote, they are those of the file system.

Not promised: what a file system takes for itself (journals, trees of free space), copies and snapshots that it keeps,
and a server's attributes and folders (NFS), of which clients see nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from lockcache.filestream.disk.mounts import Mount, is_network_mount, mount_of

# statvfs of a network file system states the size of its transfers.
_NETWORK_BLOCK_BYTES: Final = 4096
# A bound on unreasonable answers, and on what others may have put into the file.
_LARGEST_BLOCK_BYTES: Final = 1 << 20
_LARGEST_INODE_BYTES: Final = 4096
# File systems on which the blocks of a file at rest are those of its length and of its attributes, and no more. Not
# ext2 and ext3, which keep lists of blocks in blocks, nor what lies on top of another file system.
_EXACT_KINDS: Final = ("ext4", "xfs")
# In larger files the extra block may belong to a tree of extents, which comes and goes without a write; and one block
# matters little there.
_MOST_BLOCKS: Final = 256
_UNIT_BYTES: Final = 512  # of st_blocks
# What a folder of ext4 has that is not names, and of one of more than a block its index.
_HEADER_BYTES: Final = 36
_INDEX_BLOCKS: Final = 4
_XFS_INODE_BYTES: Final = 512
# The place of the folder of views among those of a shard.
_VIEWS: Final = 2


class _Sizes(NamedTuple):
    #: A file's bytes are rounded up to this.
    block_bytes: int
    #: The bytes that each file takes in addition.
    inode_bytes: int = 0
    #: Whether ``st_blocks`` shows attributes that left the inode, and what folders take.
    shows_blocks: bool = False


class Space(_Sizes):
    """The sizes that files of one directory count for, by their lengths. See :data:`SPACES`."""

    __slots__ = ()

    #: The blocks by which the two folders of a shard may grow when a name is added.
    folder_blocks = 0

    def of_bytes(self, size_bytes: int) -> int:
        """Returns what a file of this length counts for, its attribute within the inode."""
        block = self.block_bytes
        return -(-size_bytes // block) * block + self.inode_bytes

    def largest_file_bytes(self, taken_bytes: int) -> int:
        """Returns how long a file may be that counts for so much at most: the inverse of :meth:`of_bytes`."""
        return (taken_bytes - self.inode_bytes) // self.block_bytes * self.block_bytes

    def of_file(self, status: os.stat_result) -> int:
        """Returns what a regular file counts for."""
        return -(-status.st_size // self.block_bytes) * self.block_bytes + self.inode_bytes

    def most_of_entry(self, payload_bytes: int, record_bytes: int, *, has_block: bool) -> int:
        """Returns the most that storing an entry may add to what the disk holds: the entry, and folders that grow.

        ``has_block``: a block for the attribute is among it.
        """
        block = self.block_bytes
        most = -(-payload_bytes // block) * block + self.inode_bytes
        return most + self.of_bytes(record_bytes) if record_bytes else most

    def has_block_of_attribute(self, size_bytes: int) -> bool:
        """Returns whether the count of blocks of a file of this length shows the block of its attribute."""
        return False

    def of_folder(self, status: os.stat_result) -> int:
        """Returns what a folder counts for; ext4's grow by a block for some 50 names, and stay so."""
        return 0

    def of_folder_of(self, names_bytes: int) -> int:
        """Returns at most what a folder of views counts for whose entries are so long; exactly, on ext4."""
        return 0

    def of_shard_folders(self, folders: Sequence[str]) -> int:
        """Returns what the folders of a shard count for, or the first of them (:meth:`.Layout.shard_folders`).

        A folder of views stands only next to one of records.
        """
        return 0


class BlockSpace(Space):
    """The sizes where ``st_blocks`` shows what attributes and folders take."""

    __slots__ = ()

    folder_blocks = 4  # on ext4 each by two, when its first is full

    def of_file(self, status: os.stat_result) -> int:
        block, size = self.block_bytes, status.st_size
        taken = -(-size // block) * block
        if taken <= _MOST_BLOCKS * block and status.st_blocks * _UNIT_BYTES > taken:
            taken += block
        return taken + self.inode_bytes

    def most_of_entry(self, payload_bytes: int, record_bytes: int, *, has_block: bool) -> int:
        block = self.block_bytes
        most = (-(-payload_bytes // block) + self.folder_blocks + has_block) * block + self.inode_bytes
        return most + self.of_bytes(record_bytes) if record_bytes else most

    def has_block_of_attribute(self, size_bytes: int) -> bool:
        return size_bytes <= _MOST_BLOCKS * self.block_bytes

    def of_folder(self, status: os.stat_result) -> int:
        return status.st_blocks * _UNIT_BYTES

    def of_folder_of(self, names_bytes: int) -> int:
        block = self.block_bytes
        # Beyond a block the names lie in a tree, whose leaves are at least half full.
        is_one = names_bytes + _HEADER_BYTES <= block
        return block if is_one else 2 * self.of_bytes(names_bytes) + _INDEX_BLOCKS * block

    def of_shard_folders(self, folders: Sequence[str]) -> int:
        taken = 0
        for number, path in enumerate(folders):
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                if number:
                    break
                continue
            if stat.S_ISDIR(status.st_mode):
                # For the inodes of the first two, the cap reserves room (:meth:`.policy.Policy.entries_limit_bytes`).
                taken += status.st_blocks * _UNIT_BYTES + (self.inode_bytes if number == _VIEWS else 0)
        return taken


#: How a directory counts, by whether it states that blocks are shown.
SPACES: Final[dict[bool, type[Space]]] = {False: Space, True: BlockSpace}


def is_sane(space: Space) -> bool:
    """Returns whether a directory may state this: arithmetic with other sizes could fail."""
    return 0 < space.block_bytes <= _LARGEST_BLOCK_BYTES and 0 <= space.inode_bytes <= _LARGEST_INODE_BYTES


def probe_space(root: str) -> Space:
    """Returns what the file system says. Raises :class:`OSError`."""
    return _space_on(mount_of(root), os.statvfs(root).f_frsize)


def _space_on(mount: Mount | None, fragment_bytes: int) -> Space:
    if mount is not None and is_network_mount(mount):
        return Space(_NETWORK_BLOCK_BYTES)
    block = min(max(1, fragment_bytes), _LARGEST_BLOCK_BYTES)
    kind = mount.kind if mount is not None else ""
    shows = kind in _EXACT_KINDS
    return SPACES[shows](block, _XFS_INODE_BYTES if kind == "xfs" else 0, shows)
