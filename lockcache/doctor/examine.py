"""The examination: one check after the other, each given up when it takes too long, and nothing left behind.

Keeps the promise that it never hangs: this process makes no system call on the directory itself. A check that hangs is
reported as one, and after two of them the file system is taken to be dead.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

from lockcache.doctor.checks_process import Child, ChildDiedError, ChildHungError
from lockcache.doctor.checks_worker import LOOKING, TRYING
from lockcache.doctor.findings import UNTESTED, UNUSABLE, Finding, Report, Subject
from lockcache.doctor.probe_dir import PREFIX

__all__ = ["CHECKS", "TIMEOUT_SECONDS", "examine"]

#: How long a check may take. The slowest takes a second on a busy machine; a network mount may be fifty times as slow.
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

    Whatever ends it (an exception, Ctrl-C), what it made is removed, as far as the file system lets it.
    """
    return _Examination(root, timeout_seconds).run(progress)


class _Examination:
    def __init__(self, root: str, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._worker = Child("lockcache.doctor.checks_worker", own_group=True)
        self._subject = Subject(root, token=secrets.token_hex(8))
        self._may_have_written = False
        self._findings: list[Finding] = []
        self._hangs = 0

    def run(self, progress: Callable[[str, int, int], object]) -> Report:
        try:
            for number, check in enumerate(CHECKS):
                progress(check, number, len(CHECKS))
                if self._is_hopeless():
                    break
                if check not in TRYING or self._subject.probe:
                    self._do(check)
            else:
                self._tell_untried()
        except BaseException:
            self._worker.end()  # it may be in the middle of something
            raise
        finally:
            self._clean_up()
            self._worker.close()
        return Report(self._subject.root, self._findings)

    def _do(self, check: str) -> None:
        self._may_have_written |= check == "writing"
        factor = _COUNTING_FACTOR if check in _COUNTING else 1
        try:
            answer = self._ask(check, self._timeout_seconds * factor)
        except ChildHungError:
            self._hangs += 1
            found = f"no answer for {self._timeout_seconds * factor:g} s: the file system hangs"
            means = "programs that use it hang too"
            self._findings.append(Finding(check, UNUSABLE, found, means, "see to the server or the mount first"))
            return
        except ChildDiedError:
            self._findings.append(Finding(check, UNTESTED, "the process that tried it ended"))
            return
        self._subject = Subject(*answer["subject"])
        self._findings += [Finding(**finding) for finding in answer["findings"]]

    def _is_hopeless(self) -> bool:
        """Whether there is nothing to learn any more: it hangs again and again, or may not even be looked at."""
        return self._hangs >= _MOST_HANGS or bool(self._findings and not self._subject.kind)

    def _tell_untried(self) -> None:
        if not self._subject.probe:
            found = f"{', '.join(TRYING)}: nothing can be written here"
            self._findings.append(Finding("the rest", UNTESTED, found))

    def _clean_up(self) -> None:
        if not self._may_have_written:
            return
        try:
            answer = self._ask("clean", _CLEANING_SECONDS)
            self._findings += [Finding(**finding) for finding in answer["findings"]]
        except (ChildHungError, ChildDiedError):
            found = f"a directory {PREFIX}{self._subject.token} may be left: removing it hangs"
            self._findings.append(
                Finding("cleaning up", UNTESTED, found, advice="remove it when the file system answers")
            )

    def _ask(self, check: str, timeout_seconds: float) -> Any:
        return self._worker.ask({"check": check, "subject": self._subject}, timeout_seconds)
