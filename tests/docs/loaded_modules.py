# SPDX-License-Identifier: Apache-2.0
"""A program that uses a cache, and prints which modules of which packages it has loaded, and how large they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def rss_bytes() -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return 1024 * int(line.split()[1])


def main(what: str, path: str) -> None:
    """Read, or read and write; then print JSON."""
    before = set(sys.modules)
    began_bytes = rss_bytes()
    import lockcache

    with lockcache.FileStreamProgramCache(path, max_size_bytes=10**8) as cache:
        cache.get(b"k" * 32)
        if what == "writes":
            cache[b"k" * 32] = b"value"
            cache.get_or_compute(b"j" * 32, lambda: b"computed")
            if cache[b"k" * 32] != b"value":
                raise ValueError("not the value that was stored")
    grown_bytes = rss_bytes() - began_bytes
    files = {name: getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before}
    own = {name: Path(file) for name, file in files.items() if file and name.partition(".")[0].startswith("lockcache")}
    found = {
        "modules": sorted(own),
        "lines": sum(len(file.read_text().splitlines()) for file in own.values()),
        "bytes": sum(file.stat().st_size for file in own.values()),
        "memory": grown_bytes,
        "packages": sorted({name.partition(".")[0] for name in files}),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
