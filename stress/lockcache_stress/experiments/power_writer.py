"""A writer whose power is cut: ``python -m lockcache_stress.experiments.power_writer CACHE FSYNC NUMBER LOG``.

Writes until it is killed. What was stored goes to a log on another disk, with the moment at which the cache returned.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from typing import Final

from lockcache import FileStreamProgramCache
from lockcache_stress.judge import Stamp, make_value
from lockcache_stress.processes import die_with_parent

__all__ = ["KEYS", "LOGGED", "TOKEN", "key_of", "main"]

KEYS: Final = 20
TOKEN: Final = b"powercut"
#: Key, serial, when it had returned (ns, monotonic).
LOGGED: Final = struct.Struct("<IIq")
_BYTES: Final = 5000


def key_of(writer: int, key: int) -> bytes:
    """The cache key of a writer's key number."""
    return b"%d/%d" % (writer, key)


def main() -> None:
    """Until it is killed."""
    die_with_parent()
    cache_path, fsync, number, log = sys.argv[1:]
    writer, dropped = int(number), 0
    cache = FileStreamProgramCache(cache_path, fsync=fsync == "1")
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    serial = 0
    while True:
        serial += 1
        key = serial % KEYS
        cache[key_of(writer, key)] = make_value(TOKEN, key, Stamp(writer, 0, serial, 0), _BYTES + serial % 3000)
        ended_ns = time.monotonic_ns()
        if cache.stats().dropped_writes == dropped:
            os.write(fd, LOGGED.pack(key, serial, ended_ns))
        dropped = cache.stats().dropped_writes


if __name__ == "__main__":
    main()
