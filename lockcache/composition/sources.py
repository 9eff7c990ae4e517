# SPDX-License-Identifier: Apache-2.0
"""Sources: what stands behind a directory, and is asked for what the directory lacks.

A source may have another value of a key than the directory had, and either is right, since keys are digests of content.
Nothing else of it is known here. Keeps invariant 7 (never take the job down): a source raises nothing.
"""

from __future__ import annotations

from typing import Protocol

from lockcache.filestream.entry import EntryReader, Record


class Source(Protocol):
    """A bundle below the directory, or a server behind it."""

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Returns payload and record of an entry, verified; ``None`` for a miss, of whatever cause."""


class ServerTurn(Protocol):
    """This process's turn to compute an entry, among all hosts that share a server."""

    #: Whether the turn before it failed a moment ago, so that nobody needs to wait for this one.
    after_failure: bool

    def end(self, failed: bool = False) -> None:
        """Let the others in. May come twice."""


class Server(Source, Protocol):
    """A server, which takes what the directory gets, and says whose turn it is on all hosts."""

    def offer(self, name: str, payload: bytes, record: Record) -> None:
        """Send an entry in the background."""

    def remove(self, name: str) -> None:
        """Remove an entry, within this process's patience."""

    def turn(self, name: str, timeout_seconds: float | None, counts: EntryReader) -> tuple[bytes, bytes] | ServerTurn:
        """Returns the entry once another host stored it, or this process's turn to compute it.

        For after a look-up that ``counts`` counted as a miss.
        """
