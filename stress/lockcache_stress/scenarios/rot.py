# SPDX-License-Identifier: Apache-2.0
"""Entries are damaged on the disk while they are read: flipped bits, another entry's bytes, another entry's record.

One process damages, the others write and read. Proves that the digest binds payload, record and key (invariant 1, a hit
is whole): a damaged entry is a miss, and nothing else is. Damage is a removal in the history of its key.
"""

from __future__ import annotations

import os
from random import Random

from lockcache.filestream.entry import XATTR
from lockcache.lowlevel import Layout, entry_name
from lockcache_stress.plan import MIB, Scenario, Step
from lockcache_stress.run import Worker

_KEYS = 16
# All values have this size, so that the bytes of one entry fit into another, and the accounting stays right.
_BYTES = 4096
_WRITES = 0.3


def make_step(worker: Worker) -> Step:
    """Returns the step: the first process damages, the others write and read."""
    if worker.index == 0:
        return _damage(worker)
    return lambda: worker.use(worker.rng.randrange(_KEYS), (_BYTES,), writes=_WRITES)


def _damage(worker: Worker) -> Step:
    rng, layout = worker.rng, Layout(worker.plan.directory)
    # No file is damaged twice, because a second flip could undo the first. If a new file gets the inode number of an
    # older one, it is not damaged, which does no harm.
    damaged: set[int] = set()

    def step() -> bool:
        key, other = rng.sample(range(_KEYS), 2)
        path, others = (layout.entry(entry_name(worker.key(each))) for each in (key, other))
        with worker.history.damage(key, worker.key(key)) as recorded:
            try:
                inode = _damage_file(rng, path, others, damaged)
            except FileNotFoundError:
                inode = 0
            if inode:
                damaged.add(inode)
            else:
                recorded.nothing()
        worker.get(other)  # slows this process down, so that the others can replace damaged entries meanwhile
        return True

    return step


def _damage_file(rng: Random, path: str, other: str, damaged: set[int]) -> int:
    """Damage a file. Returns its inode; 0 if the file was damaged before and is left alone."""
    with open(path, "r+b", buffering=0) as file, open(other, "rb", buffering=0) as others:
        fd, source = file.fileno(), others.fileno()
        inode = os.fstat(fd).st_ino
        if inode in damaged:
            return 0
        # A damaged source may hold exactly the bytes or the record of this entry, which would repair it.
        kind = 0 if os.fstat(source).st_ino in damaged else rng.randrange(3)
        if kind == 0:
            at = rng.randrange(_BYTES)
            os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1 << rng.randrange(8)]), at)
        elif kind == 1:
            os.pwrite(fd, os.pread(source, _BYTES, 0), 0)
        else:
            os.setxattr(fd, XATTR, os.getxattr(source, XATTR))
        return inode


SCENARIO = Scenario(
    "rot",
    "entries are damaged on the disk while others read them",
    make_step,
    processes=4,
    max_size_bytes=MIB,
    keys=_KEYS,
    extra={"damages": True},
)
