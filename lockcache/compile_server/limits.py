# SPDX-License-Identifier: Apache-2.0
"""Limits of a server: how many, how large, how long. A test or a starter may state others, as JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

#: Between two looks at least. Two that see no sign of work are all that a caller loses.
LOOK_SECONDS: Final = 0.05
#: For how long a server may take until its process says that it is there, before which nobody can look at it: 15 ms on
#: an idle machine.
STARTED_SECONDS: Final = 1.0
#: The processor time that a server may take until it answers. It starts with 0.1 s.
SILENT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Limits:
    """What a server grants itself."""

    #: Prefixes whose headers are held at once. Each has some 100 MiB resident, and 310 MiB of disk for CUB.
    holders: int = 4
    #: What a holder may have resident; one that has more is not used.
    resident_bytes: int = 200 << 20
    #: Prefixes that are remembered, and requests that wait. What comes beyond is compiled by its caller.
    prefixes: int = 1024
    waiting: int = 256
    #: Connections that have not said yet what they want.
    unread: int = 256
    #: Without a request for so long a holder ends, and the server once it has none.
    idle_seconds: float = 300.0
    #: A holder that was used within so long makes no room: of six prefixes that take turns, four are held, and two are
    #: compiled by their callers. Else the headers would be compiled for each program, which costs twice what it saves.
    kept_seconds: float = 10.0
    #: A caller that was taken has its code after so long, or compiles itself: whatever is stopped, hangs or is long.
    answer_seconds: float = 15.0
    #: It says so fast what it has; one that does not keeps neither those waiting that want its headers, nor a slot.
    told_seconds: float = 5.0
    #: For how long a holder may take to be ready, and a prefix is left alone for which that failed.
    create_seconds: float = 12.0
    refused_seconds: float = 60.0
    #: A child is killed after so long, and four times what compiling the headers took.
    child_seconds: float = 10.0
    #: One compilation in so many is repeated without precompiled headers, and compared.
    check_every: int = 128
    #: How many compile at once; 0: as many as there are cores.
    at_once: int = 0

    @property
    def slots(self) -> int:
        """How many compile at once."""
        return self.at_once or len(os.sched_getaffinity(0))
