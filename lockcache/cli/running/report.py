# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one line for people, and the exit code of ``--most-compiles``.

Decides what is said: of this run's own processes alone, and nothing as not spent that this run spent itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockcache.filestream.accounting import RunPart
from lockcache.sizes import counted, format_duration

#: The exit code of ``--most-compiles`` where more was compiled, or nobody knows how much.
NOT_AS_FEW_COMPILES: Final = 3

_MOST_NAMED: Final = 5


def describe_run(parts: Sequence[RunPart]) -> str:
    """Returns what the processes of a run did, for its last line."""
    parts = _users(parts)
    if not parts:
        return "nothing was found or compiled here, by cuda.core.Program or a framework with an adapter"
    total = _total(parts)
    words = f"{counted(len(parts), 'process', 'processes')}: {total.found} found"
    if total.costless:
        words += f" ({total.costless} of them with no compile time recorded)"
    words += f", {total.compiled} compiled"
    if total.not_stored:
        words += f" ({total.not_stored} of them not stored)"
    if total.waits:
        words += f", {total.waits} waited for ({format_duration(total.waited_ns / 1e9)})"
    if total.not_spent_ns > 0:
        words += f"; {format_duration(total.not_spent_ns / 1e9)} of processor time not spent"
    lost = sum(not part.has_ended for part in parts)
    if lost:
        words += f"; {counted(lost, 'process', 'processes')} ended without a last report"
    return "".join([words, *(f"; {refusal}" for refusal in _refusals(parts))])


def exceeded(parts: Sequence[RunPart], most: int) -> str:
    """Returns why a run that was to compile ``most`` programs at most has not done so for certain; else nothing."""
    parts = _users(parts)
    if not parts:
        return "no process found or compiled a kernel, so nothing is known"
    compiled = _total(parts).compiled
    if compiled > most:
        named = [label for part in parts for label in part.labels][:_MOST_NAMED]
        rest = ", ..." if compiled > len(named) else ""
        return f"{counted(compiled, 'kernel was', 'kernels were')} compiled, more than {most}: {', '.join(named)}{rest}"
    refusals = _refusals(parts)
    return f"what was compiled is not known: {'; '.join(refusals)}" if refusals else ""


def _users(parts: Sequence[RunPart]) -> list[RunPart]:
    """Returns the parts of processes that did something, or may have."""
    return [part for part in parts if part.found or part.compiled or part.refusals or not part.has_ended]


def _total(parts: Sequence[RunPart]) -> RunPart:
    return RunPart._make([*map(sum, zip(*(part.numbers for part in parts), strict=True)), (), ()])


def _refusals(parts: Sequence[RunPart]) -> list[str]:
    """Returns the frameworks that went on with their own cache, each once and with one reason."""
    by_framework: dict[str, str] = {}
    for part in parts:
        for refusal in part.refusals:
            framework, _, reason = refusal.partition(": ")
            by_framework.setdefault(framework, reason)
    return [f"{name} went on with its own cache ({reason})" for name, reason in by_framework.items()]
