"""The cap in force for one directory: the operator's, from the command line first and from the policy file after.

Keeps the promise that a change of the policy takes effect at the next tick, and that a full disk, which takes no new
policy, is swept all the same.
"""

from __future__ import annotations

from lockcache.filestream.layout import Layout
from lockcache.filestream.policy import Policy, PolicyFile
from lockcache_daemon.policing import read_policy
from lockcache_daemon.report import Report
from lockcache_daemon.rules import Rules, Watermarks

__all__ = ["Cap"]


class Cap:
    """Made with the keeper of a directory; :meth:`forget` when the directory is opened anew."""

    def __init__(self, root: str, rules: Rules, report: Report) -> None:
        self._root = root
        self._rules = rules
        self._report = report
        self.policy = Policy()

    @property
    def marks(self) -> Watermarks | None:
        """Where sweeps begin and end now; ``None`` without a cap."""
        return self._rules.watermarks(self.policy)

    def forget(self) -> None:
        self.policy = Policy()

    def obey(self, file: PolicyFile, layout: Layout) -> None:
        """Put the cap in force, once; from then on what an operator writes into the policy counts."""
        found, why = read_policy(file, layout)
        was, wanted = self.policy, self._rules.policy
        if was.by_operator and found.by_operator:
            self.policy = found
            if found != was:
                self._report.cap_changed(self._root, found)
        elif found == wanted:
            self.policy = wanted
        else:
            self.policy = wanted  # also if it cannot be written: a full disk needs its sweeps most of all
            file.replace(wanted)
            if was.by_operator:  # else it is the first time, of which the start is told
                self._report.cap_restored(self._root, wanted, why)
