# SPDX-License-Identifier: Apache-2.0
"""The first process: does one check at a time, for the examining process, which gives it up when it hangs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final

from lockcache.doctor import cache_state, cache_trial, disk_room, files, known_file_systems, sharing
from lockcache.doctor.checks_process import ChildDiedError, ChildHungError, serve
from lockcache.doctor.findings import UNTESTED, UNUSABLE, Finding, Subject
from lockcache.doctor.probe_dir import clean, held, kind_of, make_probe, not_writable, writable

#: Checks that only look, in the order in which they are reported.
LOOKING: Final[dict[str, Callable[[Subject], list[Finding]]]] = {
    "file system": known_file_systems.file_system,
    "other hosts": known_file_systems.other_hosts,
    "safety": cache_state.safety,
    "policy": cache_state.policy,
    "daemon": cache_state.daemon,
    "room": disk_room.room,
    "open files": disk_room.descriptors,
    "accounting": cache_state.accounting,
    "leftovers": cache_state.leftovers,
}
#: Checks that try something, in a directory of their own.
TRYING: Final[dict[str, Callable[[Subject], list[Finding]]]] = {
    "locks": sharing.locks,
    "rename": sharing.rename,
    "exclusive creation": sharing.exclusive_creation,
    "new names": sharing.new_names,
    "attributes": files.attributes,
    "times": files.times,
    "group": files.group_member,
    "clock": files.clock,
    "fsync": files.syncing,
    "a real cache": cache_trial.storing,
}

_made: dict[str, Subject] = {}


def main() -> None:
    """Serve until the examining process is gone, then remove what was made."""
    logging.getLogger("lockcache").addHandler(logging.NullHandler())  # not on the stderr of an operator's command
    try:
        serve(_answer)
    finally:
        for subject in list(_made.values()):
            clean(subject)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    check, subject = request["check"], Subject(*request["subject"])
    if subject.probe:
        _made[subject.probe] = subject  # by an earlier worker, which was given up
    try:
        if check == "directory":
            subject = subject._replace(kind=kind_of(subject.root))
            findings = cache_state.directory(subject)
        elif check == "writing":
            subject, findings = _write(subject)
        elif check == "clean":
            findings = clean(subject)
            if not findings:
                _made.pop(subject.probe, None)
        else:
            findings = _try(check, subject) if check in TRYING else LOOKING[check](subject)
    except OSError as error:
        findings = [_failed(check, subject, error)]
    except (ChildDiedError, ChildHungError):
        findings = [Finding(check, UNTESTED, "the second process ended, or hangs, in the middle of it")]
    return {"subject": subject, "findings": [asdict(finding) for finding in findings]}


def _failed(check: str, subject: Subject, error: OSError) -> Finding:
    """Returns the finding for an error that no check expects; for an unreadable directory it is the only one."""
    if check == "directory":
        found, advice = cache_state.denied(subject.root, error)
        return Finding(check, UNUSABLE, found, "no cache can be opened here", advice)
    return Finding(check, UNTESTED, f"failed: {error}", "what failed here may fail in a cache too")


def _write(subject: Subject) -> tuple[Subject, list[Finding]]:
    try:
        probe = make_probe(subject)
    except OSError as error:
        return subject, not_writable(subject, error)
    subject = subject._replace(probe=probe)
    _made[probe] = subject
    return subject, writable(subject, probe)


def _try(check: str, subject: Subject) -> list[Finding]:
    with held(subject) as tried:
        # The path by which it was reached is of no use to the operator.
        return [replace(each, found=each.found.replace(tried.probe, subject.probe)) for each in TRYING[check](tried)]


if __name__ == "__main__":
    main()
