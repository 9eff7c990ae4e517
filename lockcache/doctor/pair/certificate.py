# SPDX-License-Identifier: Apache-2.0
"""Certification: asks this host's worker for one trial after the other, each given up when it takes too long."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lockcache.doctor.examine import Examination
from lockcache.doctor.findings import UNTESTED, Finding, Report
from lockcache.doctor.pair.rendezvous import TOKEN_PREFIX
from lockcache.doctor.pair.worker import TRIALS

#: The wait for the other host, and the time that one trial may take. If all is seen late, one takes 20 seconds.
TIMEOUT_SECONDS: Final = 60.0
#: The progress that is shown while the other host is missing.
WAITING: Final = "waiting for the other host: run the same command there"

_SLICE_SECONDS: Final = 1.0
# For a worker that gives up by itself to say so, before it is taken to hang.
_GRACE_SECONDS: Final = 10.0
_NOT_CERTIFIED: Final = 2


@dataclass(frozen=True)
class Certificate(Report):
    """The findings of two hosts about a directory. Both have the same, except the verdict on a check that failed on
    one."""

    #: Whether the two were two hosts, and everything was tried.
    is_certified: bool

    @property
    def exit_code(self) -> int:
        """0 good, 1 degraded, 2 unusable or not certified."""
        return super().exit_code if self.is_certified else _NOT_CERTIFIED

    @property
    def verdict(self) -> str:
        """The verdict in one or two words."""
        return super().verdict if self.is_certified else UNTESTED

    def as_dict(self) -> dict[str, Any]:
        """Returns the certificate in the shape of its JSON."""
        return {**super().as_dict(), "certified": self.is_certified}


def certify(
    root: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    progress: Callable[[str, int, int], object] = lambda check, done, of: None,
) -> Certificate:
    """Certify the directory ``root`` together with another host that does the same.

    ``progress`` is given :data:`WAITING` after a second without the other host, then the next check and its number.
    Removes what it made, as far as the file system allows, whatever ends it (an exception, Ctrl-C).
    """
    certification = _Certification(root, timeout_seconds)
    report = certification.run(progress)
    return Certificate(report.path, report.findings, certification.is_certified)


class _Certification(Examination):
    def __init__(self, root: str, timeout_seconds: float) -> None:
        super().__init__(root, timeout_seconds, "lockcache.doctor.pair.worker", TOKEN_PREFIX + secrets.token_hex(8))
        self._options = {"timeout_seconds": timeout_seconds, "slice_seconds": min(_SLICE_SECONDS, timeout_seconds)}
        self._is_complete = False

    @property
    def is_certified(self) -> bool:
        return self._is_complete and all(finding.verdict != UNTESTED for finding in self._findings)

    def _do_all(self, progress: Callable[[str, int, int], object]) -> None:
        if not self._goes_on("directory"):
            return
        self._may_have_written = True
        if not self._goes_on("start") or not self._meet(progress):
            return
        for number, check in enumerate(TRIALS):
            progress(check, number, len(TRIALS))
            if not self._goes_on(check):
                return
        self._is_complete = True
        self._goes_on("end")

    def _meet(self, progress: Callable[[str, int, int], object]) -> bool:
        end = time.monotonic() + self._timeout_seconds
        while True:
            answer = self._do("meet", self._timeout_seconds + _GRACE_SECONDS)
            if answer is None or answer["is_over"]:
                return False
            if answer["has_met"]:
                return True
            if time.monotonic() > end:
                found = f"no other host came to {self._subject.root} for {self._timeout_seconds:g} s"
                means = "one host alone cannot tell what two see of each other: nothing is certified"
                advice = "run the same command on the other host at the same time; --timeout waits longer"
                self._findings.append(Finding("two hosts", UNTESTED, found, means, advice))
                return False
            progress(WAITING, 0, len(TRIALS))

    def _goes_on(self, check: str) -> bool:
        answer = self._do(check, self._timeout_seconds + _GRACE_SECONDS)
        return answer is not None and not answer["is_over"]
