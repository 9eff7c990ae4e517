# SPDX-License-Identifier: Apache-2.0
"""Content of a report, whatever its form, and text made fit for XML and HTML (:func:`printable`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lockcache_stress.run import Grid, Reportable


@dataclass(frozen=True)
class Ran:
    """A run that has ended, and the command that makes the same choices again."""

    outcome: Reportable
    replay: Sequence[str]
    #: The place of the run, which is part of its name, if the same scenario runs in several places.
    place: str = ""

    @property
    def name(self) -> str:
        """A name that no other run of the report has."""
        return f"{self.place}: {self.outcome.name}" if self.place else self.outcome.name

    @property
    def title(self) -> str:
        """The title of the run, with its place."""
        return f"{self.place}: {self.outcome.title}" if self.place else self.outcome.title


@dataclass(frozen=True)
class Written:
    """The content of a report."""

    title: str
    runs: Sequence[Ran]
    #: The machine: names and descriptions of its parts.
    machine: Mapping[str, str]
    #: The names of what was not run, with the reasons.
    skipped: Sequence[tuple[str, str]] = ()
    #: The reason why the run ended early; empty if it did not.
    cut_short: str = ""
    #: Tables about all of the runs.
    grids: Sequence[Grid] = ()
    #: Numbers for the JSON in addition to the verdict and the runs' own.
    numbers: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the report is complete, and every run passed."""
        return not self.cut_short and all(ran.outcome.ok for ran in self.runs)

    @property
    def verdict(self) -> str:
        """``ok``, ``FAILED``, or ``skipped`` if no run was possible."""
        if not self.ok:
            return "FAILED"
        return "ok" if self.runs else "skipped"


def words_of(finding: Mapping[str, Any]) -> str:
    """Returns the text of a finding: its error, or all of it."""
    return str(finding.get("error") or json.dumps(finding))


# The characters that are not a Char of https://www.w3.org/TR/xml/#charsets, also lone surrogates (of names in other
# encodings).
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: object) -> str:
    """Returns ``text`` with escapes such as ``\\x1b`` for characters that XML forbids."""
    return _FORBIDDEN.sub(lambda found: ascii(found[0])[1:-1], str(text))
