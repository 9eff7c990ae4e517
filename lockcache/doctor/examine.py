# SPDX-License-Identifier: Apache-2.0
"""The examination: one check after the other, each given up when it takes too long, and nothing left behind.

Keeps the promise that it never hangs: this process makes no system call on the directory itself. A check that hangs is
reported as one, and after two of them the file system is taken to be dead. :mod:`.pair` examines by the same rules.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from lockcache.doctor.checks_process import Child, ChildDiedError, ChildHungError
from lockcache.doctor.checks_worker import LOOKING, TRYING
from lockcache.doctor.findings import UNTESTED, UNUSABLE, Finding, Report, Subject
from lockcache.doctor.probe_dir import PREFIX

#: The time that a check may take. The slowest takes a second on a busy machine; a network mount may be fifty times as
#: slow.
TIMEOUT_SECONDS: Final = 15.0
# Counting a million entries takes three seconds on a local disk.
_COUNTING: Final = ("room", "accounting")
_COUNTING_FACTOR: Final = 8
_MOST_HANGS: Final = 2
_CLEANING_SECONDS: Final = 5.0

#: In order.
CHECKS: Final = ("directory", *LOOKING, "writing", *TRYING)


def examine(
    root: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    progress: Callable[[str, int, int], object] = lambda check, done, of: None,
) -> Report:
    """Examine the directory ``root``, which need not be there. ``progress`` is given the next check and its number.

    Removes what it made, as far as the file system allows, whatever ends it (an exception, Ctrl-C).
    """
    return _OneHost(root, timeout_seconds).run(progress)


class Examination(ABC):
    """Checks that a worker does, in a directory of its own, which is removed whatever ends the examination."""

    def __init__(self, root: str, timeout_seconds: float, worker: str, token: str) -> None:
        self._timeout_seconds = timeout_seconds
        self._worker = Child(worker, own_group=True)
        self._subject = Subject(root, token=token)
        self._may_have_written = False
        self._findings: list[Finding] = []
        self._hangs = 0
        self._is_interrupted = False
        #: Arguments that the worker gets with each check.
        self._options: dict[str, Any] = {}

    def run(self, progress: Callable[[str, int, int], object]) -> Report:
        """Do all checks."""
        try:
            self._do_all(progress)
        except BaseException:
            self._is_interrupted = True
            self._worker.end()  # it may be in the middle of something
            raise
        finally:
            self._clean_up()
            self._worker.close()
        return self._report()

    @abstractmethod
    def _do_all(self, progress: Callable[[str, int, int], object]) -> None:
        """Do each check in turn. ``progress`` as for :meth:`run`."""

    def _report(self) -> Report:
        return Report(self._subject.root, self._findings)

    def _do(self, check: str, limit_seconds: float) -> dict[str, Any] | None:
        """Returns what the worker answers, with its findings noted; ``None`` where there is no answer."""
        try:
            answer: dict[str, Any] = self._ask(check, limit_seconds)
        except ChildHungError:
            self._hangs += 1
            found = f"no answer for {limit_seconds:g} s: the file system hangs"
            means = "programs that use it hang too"
            self._findings.append(Finding(check, UNUSABLE, found, means, "repair the server or the mount first"))
            return None
        except ChildDiedError:
            self._findings.append(Finding(check, UNTESTED, "the process that tried it ended"))
            return None
        self._subject = Subject(*answer["subject"])
        self._findings += [Finding(**finding) for finding in answer["findings"]]
        return answer

    def _clean_up(self) -> None:
        if not self._may_have_written:
            return
        try:
            # A user who interrupts does not want to wait, and what hangs goes on hanging; else it may be slow.
            is_short = self._is_interrupted or self._hangs
            answer = self._ask(
                "clean", _CLEANING_SECONDS if is_short else max(_CLEANING_SECONDS, self._timeout_seconds)
            )
            self._findings += [Finding(**finding) for finding in answer["findings"]]
        except (ChildHungError, ChildDiedError):
            found = f"a directory {PREFIX}{self._subject.token} may be left: removing it hangs"
            self._findings.append(
                Finding("cleaning up", UNTESTED, found, advice="remove it when the file system answers")
            )

    def _ask(self, check: str, limit_seconds: float) -> Any:
        return self._worker.ask({"check": check, "subject": self._subject, **self._options}, limit_seconds)


class _OneHost(Examination):
    """The examination by one host."""

    def __init__(self, root: str, timeout_seconds: float) -> None:
        super().__init__(root, timeout_seconds, "lockcache.doctor.checks_worker", secrets.token_hex(8))

    def _do_all(self, progress: Callable[[str, int, int], object]) -> None:
        for number, check in enumerate(CHECKS):
            progress(check, number, len(CHECKS))
            if self._is_hopeless():
                return
            if check not in TRYING or self._subject.probe:
                self._may_have_written |= check == "writing"
                self._do(check, self._timeout_seconds * (_COUNTING_FACTOR if check in _COUNTING else 1))
        if not self._subject.probe:
            found = f"{', '.join(TRYING)}: nothing can be written here"
            self._findings.append(Finding("the rest", UNTESTED, found))

    def _is_hopeless(self) -> bool:
        """Returns whether further checks are pointless: the directory hangs repeatedly, or may not be read at all."""
        return self._hangs >= _MOST_HANGS or bool(self._findings and not self._subject.kind)
