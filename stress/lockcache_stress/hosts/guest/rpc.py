# SPDX-License-Identifier: Apache-2.0
"""Requests to an NFS server, counted by the client's kernel: ``/proc/self/mountstats``."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

_OPERATION: Final = re.compile(r"^\t *([A-Z_0-9]+): (\d+) ")
# Operations that the client does by its clock, and not for a process.
_BY_CLOCK: Final = ("NULL", "RENEW", "SEQUENCE", "EXCHANGE_ID", "CREATE_SESSION")


class Requests:
    """Counts the requests of a mount to its server from now on."""

    def __init__(self, mount: str) -> None:
        self._mount = mount
        self._before = self._read()

    def since(self) -> Counter[str]:
        """Returns the number of requests of each operation since the last call."""
        now = self._read()
        difference = now - self._before
        self._before = now
        return difference

    def _read(self) -> Counter[str]:
        with open("/proc/self/mountstats") as file:
            return parse_mountstats(file.read(), self._mount)


def parse_mountstats(text: str, mount: str) -> Counter[str]:
    """Returns the number of requests by operation of the file system that is mounted at ``mount``."""
    found: Counter[str] = Counter()
    is_wanted = False
    for line in text.splitlines():
        if line.startswith("device "):
            is_wanted = f" mounted on {mount} " in line
        elif is_wanted and (operation := _OPERATION.match(line)) and operation[1] not in _BY_CLOCK:
            found[operation[1]] += int(operation[2])
    return found
