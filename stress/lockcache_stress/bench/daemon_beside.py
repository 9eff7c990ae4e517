"""Daemons on the directories of ours that are measured: what holds must hold with the daemon on too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from lockcache_stress.bench.base import Line
from lockcache_stress.bench.daemon import WatchedDaemon

__all__ = ["Daemons"]

# A daemon wants a budget; where nothing is to be evicted, one that nothing reaches.
_PLENTY_BYTES: Final = 1 << 50


@dataclass
class Daemons:
    """One ``lockcache-daemon`` for each directory that is given to it."""

    #: Where their logs go.
    logs: str
    attended: int = 0
    #: What was wrong with them: that one died, or complained.
    troubles: list[str] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Daemons:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextmanager
    def attending(self, path: str, max_size_bytes: int | None) -> Iterator[None]:
        """A daemon keeps ``path`` under this cap, or under none that matters, for as long as the block lasts."""
        self.attended += 1
        logs = os.path.join(self.logs, f"daemon-{self.attended}")
        os.mkdir(logs, 0o700)
        daemon = WatchedDaemon(path, logs, max_size_bytes or _PLENTY_BYTES)
        with daemon:
            yield
        trouble = daemon.trouble()
        if trouble:
            self.troubles.append(trouble)

    def attend(self, path: str, max_size_bytes: int | None) -> None:
        """The same, until these daemons' own block ends."""
        self._stack.enter_context(self.attending(path, max_size_bytes))

    def line(self, name: str) -> Line:
        """How they fared. Requires: after the block."""
        return Line(
            f"daemons beside {name}, dead or complaining" + "".join(f"; {each}" for each in self.troubles),
            f"{len(self.troubles)} of {self.attended}",
            bar="0",
            ok=not self.troubles,
            numbers={"attended": self.attended, "troubles": list(self.troubles)},
        )
