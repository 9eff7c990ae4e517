# SPDX-License-Identifier: Apache-2.0
"""Findings of an examination: a verdict for each check, what it means for a cache, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

GOOD: Final = "good"
#: Worth knowing; nothing is lost.
NOTE: Final = "note"
#: Could not be tried here, and says why.
UNTESTED: Final = "not tested"
#: A cache works, with the loss that is named.
DEGRADED: Final = "degraded"
#: A cache cannot be used, or stores nothing.
UNUSABLE: Final = "unusable"

_EXIT_CODES: Final = {DEGRADED: 1, UNUSABLE: 2}


class Subject(NamedTuple):
    """The directory that is examined."""

    #: Absolute path of the directory that was asked for.
    root: str
    #: ``cache``, ``empty``, ``other`` (holds other things), ``missing``; empty until it is known.
    kind: str = ""
    #: The folder for trial files; empty if nothing can be written.
    probe: str = ""
    #: The part of the name of ``probe`` that makes it unique.
    token: str = ""

    @property
    def place(self) -> str:
        """A path that is there and on the same file system."""
        path = self.root
        while not os.path.isdir(path) and path != os.path.dirname(path):
            path = os.path.dirname(path)
        return path


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: str
    #: The observation, with figures.
    found: str
    #: The loss for a cache; empty if there is none.
    means: str = ""
    #: The remedy; empty if there is none.
    advice: str = ""
    #: The figures, for programs.
    measured: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All findings about one directory."""

    path: str
    findings: list[Finding]

    @property
    def exit_code(self) -> int:
        """0 good, 1 degraded, 2 unusable: the worst of all."""
        return max((_EXIT_CODES.get(finding.verdict, 0) for finding in self.findings), default=0)

    @property
    def verdict(self) -> str:
        """The verdict in one word."""
        return (GOOD, DEGRADED, UNUSABLE)[self.exit_code]

    def as_dict(self) -> dict[str, Any]:
        """Returns the report in the shape of its JSON."""
        checks: Iterable[dict[str, Any]] = map(asdict, self.findings)
        return {"path": self.path, "verdict": self.verdict, "exit_code": self.exit_code, "checks": list(checks)}
