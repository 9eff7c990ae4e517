# SPDX-License-Identifier: Apache-2.0
"""One host's process: meets the other host and does its part in each trial, at the request of the process that
certifies.

Keeps the promise that nothing is left: the process that asks is gone when stdin is at its end, which is looked at in
every pause; then, as after any other end, this removes what it made.
"""

from __future__ import annotations

import logging
import select
import sys
import time
from dataclasses import asdict, replace
from typing import Any, Final

from lockcache.doctor.checks_process import serve
from lockcache.doctor.findings import UNTESTED, Finding, Subject
from lockcache.doctor.pair import clocks, contents, locks, names, pages
from lockcache.doctor.pair.hosts import Card, judge_hosts
from lockcache.doctor.pair.messages import Link, LostError
from lockcache.doctor.pair.rendezvous import Meeting, Met, remove_leftovers
from lockcache.doctor.pair.trial import Trial, run_trial
from lockcache.doctor.probe_dir import clean, held, kind_of, make_probe, not_writable
from lockcache.filestream.disk import GuestLayout, Layout

#: In order.
TRIALS: Final[dict[str, Trial]] = {
    "locks": locks.LOCKS,
    "exclusive creation": locks.CREATION,
    "new names": names.NEW,
    "replaced files": names.REPLACED,
    "removed files": names.REMOVED,
    "rename": contents.REPLACING,
    "attributes": contents.ATTRIBUTES,
    "open pages": pages.PAGES,
    "clocks": clocks.CLOCKS,
    "wake-ups": clocks.WAKING,
}

_LOOK_SECONDS: Final = 0.2
# Until something is seen late. Longer tells no more: it is too late for a cache by then.
_LIMIT_SECONDS: Final = 5.0
_LIMIT_SHARE: Final = 12


_NOTHING_CERTIFIED: Final = "nothing more was tried: what is not named above is not certified"
_RUN_AGAIN: Final = "run it again on both"


class _Host:
    """This host's side of a run."""

    def __init__(self) -> None:
        self._subject = Subject("")
        self._made: Subject | None = None
        self._card: Card | None = None
        self._meeting: Meeting | None = None
        self._met: Met | None = None
        self._link: Link | None = None

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do one step. ``is_over``: there is nothing to go on with."""
        check, self._subject = request["check"], Subject(*request["subject"])
        try:
            findings, is_over = self._do(check, request), False
        except LostError as error:
            advice = "mount it on both, and name the same directory" if check == "meet" else _RUN_AGAIN
            findings, is_over = [Finding(check, UNTESTED, str(error), _NOTHING_CERTIFIED, advice)], True
        except (OSError, ValueError) as error:
            findings, is_over = [Finding(check, UNTESTED, f"failed: {error}", _NOTHING_CERTIFIED, _RUN_AGAIN)], True
        return {
            "subject": self._subject,
            "findings": [asdict(finding) for finding in findings],
            "is_over": is_over or (check == "start" and bool(findings)),
            "has_met": self._link is not None,
        }

    def clean_up(self) -> None:
        """Remove what was made, if that was not done."""
        if self._made is not None:
            clean(self._made)

    def _do(self, check: str, request: dict[str, Any]) -> list[Finding]:
        timeout_seconds: float = request["timeout_seconds"]
        if check == "directory":
            self._subject = self._subject._replace(kind=kind_of(self._subject.root))
            return []
        if check == "start":
            return self._start()
        if check == "clean":
            self._made = None
            return clean(self._subject)
        if check == "meet":
            return self._meet(request["slice_seconds"], timeout_seconds)
        if self._met is None or self._link is None:
            raise ValueError(f"{check} before the other host was met")
        if check == "end":
            self._link.begin(len(TRIALS))
            self._link.part()
            return []
        return [self._try(check, self._met, self._link, min(_LIMIT_SECONDS, timeout_seconds / _LIMIT_SHARE))]

    def _start(self) -> list[Finding]:
        subject = self._subject
        try:
            subject = subject._replace(probe=make_probe(subject))
        except OSError as error:
            return not_writable(subject, error)
        self._subject = self._made = subject
        remove_leftovers(subject, self._layout)
        self._card = Card.of(subject.place)
        self._meeting = Meeting(self._layout, subject.probe, self._card)
        return []

    def _meet(self, slice_seconds: float, timeout_seconds: float) -> list[Finding]:
        if self._meeting is None or self._card is None:
            raise ValueError("meet before start")
        end = time.monotonic() + slice_seconds
        met = self._meeting.look()
        while met is None and time.monotonic() < end:
            _pause(_LOOK_SECONDS)
            met = self._meeting.look()
        if met is None:
            return []
        self._met, theirs = met, Card.parse(met.card)
        if theirs.version != self._card.version:
            raise LostError(f"the other host has lockcache {theirs.version}, this one {self._card.version}")
        self._link = Link(self._layout, self._subject.probe, met.folder, timeout_seconds, _pause)
        return [judge_hosts(self._card, theirs) if met.is_first else judge_hosts(theirs, self._card)]

    def _try(self, check: str, met: Met, link: Link, limit_seconds: float) -> Finding:
        folder = self._subject if met.is_first else self._subject._replace(probe=met.folder)
        number = list(TRIALS).index(check)
        with held(folder) as tried:
            found = run_trial(check, number, TRIALS[check], link, tried.probe, met.is_first, limit_seconds)
            # Nobody can do anything with the path by which it was reached.
            return replace(found, found=found.found.replace(tried.probe, folder.probe))

    @property
    def _layout(self) -> Layout:
        # By descriptors, each folder opened again for each use: others may be able to write next to the probe, and a
        # client of NFS asks the server only then.
        return GuestLayout(self._subject.place)


def main() -> None:
    """Serve until the process that certifies is gone, then remove what was made."""
    logging.getLogger("lockcache").addHandler(logging.NullHandler())  # not on the stderr of an operator's command
    host = _Host()
    try:
        serve(host.do)
    finally:
        host.clean_up()


def _pause(seconds: float) -> None:
    """Wait, and end this process if the process that asks is gone: it sends nothing else before it has the answer."""
    if select.select([sys.stdin], [], [], seconds)[0]:
        raise SystemExit


if __name__ == "__main__":
    main()
