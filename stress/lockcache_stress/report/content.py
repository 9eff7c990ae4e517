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
    #: Where it ran, if the same runs in several places: part of its name.
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
    """Everything that goes into a report."""

    title: str
    runs: Sequence[Ran]
    #: On what: name and description.
    machine: Mapping[str, str]
    #: What was not run, and why.
    skipped: Sequence[tuple[str, str]] = ()
    #: Why it is not all that was asked for; empty for what came to its end.
    cut_short: str = ""
    #: Tables about all of the runs.
    grids: Sequence[Grid] = ()
    #: What the JSON has in addition to the verdict, where it is more than what each run says.
    numbers: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the report is complete, and all of it as it must be."""
        return not self.cut_short and all(ran.outcome.ok for ran in self.runs)

    @property
    def verdict(self) -> str:
        """``ok``, ``FAILED``, or ``skipped`` where nothing at all was run."""
        if not self.ok:
            return "FAILED"
        return "ok" if self.runs else "skipped"


def words_of(finding: Mapping[str, Any]) -> str:
    """Returns what is shown of a finding: its error, or all of it."""
    return str(finding.get("error") or json.dumps(finding))


# https://www.w3.org/TR/xml/#charsets: all that is not a Char, lone surrogates (names in other encodings) included.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: object) -> str:
    """Returns ``text`` with escapes such as ``\\x1b`` for characters that XML forbids."""
    return _FORBIDDEN.sub(lambda found: ascii(found[0])[1:-1], str(text))
