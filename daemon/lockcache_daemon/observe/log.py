# SPDX-License-Identifier: Apache-2.0
"""The daemon's log: a line for people, or a JSON object for programs, per event.

Decides the words, and that a reader of the log cannot stop the daemon: a closed pipe or a full disk under its log costs
lines, which are counted, and nothing else. Errors go to stderr in lines for people; with ``--json`` all is on stdout.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from io import UnsupportedOperation
from typing import Any, Final, TextIO

from lockcache.arguments import unknown_in_words
from lockcache.errors import in_words
from lockcache.lowlevel import Evicted, Policy, Slot, Verdict
from lockcache.sizes import counted, format_size, json_text, printable
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.observe.board import Board, Repairs, Summary, Sweep, of_directory
from lockcache_daemon.settings import Watermarks

# The time between two lines about repairs: drift is not repaired in silence, and a log stays readable next to programs
# that do not account (cuda.core's own cache) and cause drift at every tick.
_FIRST_PAUSE_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0


class Report:
    """Writes events to ``out``, and errors for people to ``err``."""

    def __init__(self, *, as_json: bool, out: TextIO, err: TextIO) -> None:
        #: Whether to write JSON. It may be changed between two events.
        self.as_json = as_json
        self._out = out
        self._err = err
        #: The state after all events, for the page and the metrics.
        self.board = Board()
        #: Lines that could not be written.
        self.lost_lines = 0
        #: Why somebody who wanted them has not got them; ``None`` also where a stream is closed, or read no further.
        self.why_lost: OSError | None = None
        self._writing = threading.Lock()

    def started(
        self,
        root: str,
        layout: str,
        policy: Policy,
        marks: Watermarks | None,
        held: Slot,
        *,
        was_made: bool = False,
        budgets: str = "",
    ) -> None:
        self.board.opened(root, policy, marks, held)
        fields: dict[str, Any] = {"layout": layout, "bytes": held.bytes, "entries": held.entries, "created": was_made}
        fields["max_size_bytes"] = policy.max_size_bytes
        how = f"created; layout {layout}" if was_made else f"layout {layout}"
        if marks is None or policy.max_size_bytes is None:
            self._say("start", root, f"{how}, managed without a cap{budgets}", **fields)
            return
        self._say(
            "start",
            root,
            f"{how}, cap {format_size(policy.max_size_bytes)}{budgets}, sweeps above {format_size(marks.high_bytes)} "
            f"down to {format_size(marks.low_bytes)}; holds {_holding(held)}",
            **fields,
            **marks._asdict(),
        )

    def standing_by(self, root: str, error: AlreadyServedError) -> None:
        self.board.stood_by(root)
        self._say("standby", root, f"stands by: {error}", holder=error.holder)

    def took_over(self, root: str) -> None:
        self._say("takeover", root, "took over: the daemon that managed it is gone")

    def cap_changed(self, root: str, policy: Policy, *, is_setting: bool = False) -> None:
        """Report another cap: of settings that were reloaded, or of a policy that somebody wrote into the directory."""
        what = "settings reloaded: cap" if is_setting else "the cap was changed to"
        self._say("cap", root, f"{what} {_in_words(policy)}", **_cap(policy), reloaded=is_setting)

    def cap_restored(self, root: str, policy: Policy, why: str) -> None:
        self._say("cap", root, f"restored the cap of {_in_words(policy)}: {why}", **_cap(policy), restored=why)

    def swept(self, root: str, sweep: Sweep) -> None:
        self.board.swept(root, sweep)
        reason = "" if sweep.budget == "max-size" else f" for {sweep.budget}:"
        text = (
            f"swept{reason} {format_size(sweep.before_bytes)} -> {format_size(sweep.after_bytes)}, evicted "
            f"{counted(sweep.evicted_entries, 'entry')} in {sweep.milliseconds:.0f} ms"
        )
        self._say("sweep", root, text, **asdict(sweep))

    def failed(self, root: str, error: Exception) -> None:
        self._say(
            "error",
            root,
            f"{in_words(error)} (tried again at every tick, reported once)",
            level="error",
            error=_fields_of(error),
        )

    def failing(self, root: str, error: Exception) -> None:
        """Count a failure, also of a kind that was reported before."""
        self.board.failed(root, in_words(error))

    def recovered(self, root: str) -> None:
        self.board.recovered(root)
        self._say("recovered", root, "works again")

    def warned(self, message: str) -> None:
        self.board.warned()
        self._say("warning", None, message, level="warning", message=message)

    def reloaded(self, directories: int) -> None:
        self.board.is_reload_refused = False
        self._say(
            "reload", None, f"reloaded the settings; {counted(directories, 'directory')}", directories=directories
        )

    def unknown_variable(self, name: str, meant: str) -> None:
        self._say("variable", None, unknown_in_words(name, meant), level="warning", variable=name, meant=meant or None)

    def not_reloaded(self, line: str) -> None:
        self.board.is_reload_refused = True
        self._say_error("SettingsError", line, f"not reloaded, the settings stay as they were: {line}")

    def let_go(self, root: str) -> None:
        self.board.let_go(root)
        self._say("release", root, "not managed any more")

    def listening(self, address: str) -> None:
        self._say("listen", None, f"metrics and status page on http://{address}/", address=address)

    def not_served(self, message: str) -> None:
        self._say_error("ServingError", message, message)

    def refused(self, message: str, exit_code: int) -> None:
        self._say("refused", None, message, level="error", message=message, exit_code=exit_code)

    def stopped(self, signal_name: str) -> None:
        self._say("stop", None, f"stopped by {signal_name}", signal=signal_name)

    def summed_up(self, root: str, summary: Summary) -> None:
        self.board.summed_up(root, summary)
        text = (
            f"{format_size(summary.before.bytes)} -> {_holding(summary.after)}; evicted {summary.evicted.entries}, "
            f"repaired the accounting of {counted(summary.repaired_shards, 'shard')}"
        )
        if summary.repairs.shards:
            text += f" ({_in_words_of(summary.repairs)})"
        if summary.busy_shards:
            text += f"; {counted(summary.busy_shards, 'shard')} stayed locked by others, not counted"
        self._say("summary", root, text, **_flat(summary))

    def drifted(self, root: str, repairs: Repairs) -> None:
        text = f"repaired the accounting of {counted(repairs.shards, 'shard')}: {_in_words_of(repairs)}"
        self._say("repair", root, text, **repairs._asdict())

    def found(self, root: str, verdict: Verdict) -> None:
        """Report a corrupt or unreadable entry."""
        if verdict.error:
            done = f"; it could not be moved into quarantine: {verdict.error}"
        elif verdict.moved_to:
            done = f"; moved to {verdict.moved_to}"
        else:
            done = "; removed" if verdict.is_repaired else ""
        text = f"entry {verdict.name} is {verdict.state}: {verdict.in_words}{done}"
        fields = {"entry": verdict.name, "bytes": verdict.size_bytes, "why": verdict.why}
        fields |= {
            "moved_to": verdict.moved_to or None,
            "repaired": verdict.is_repaired,
            "error": verdict.error or None,
        }
        self._say(verdict.state, root, text, level="warning", **fields)

    def scrubbed(self, root: str, counts: Mapping[str, int]) -> None:
        """Report a round, or a complete pass, in numbers."""
        corrupt, unreadable, unverified = (counts.get(state, 0) for state in ("corrupt", "unreadable", "unverified"))
        text = (
            f"verified {counted(counts['entries'], 'entry')}, {format_size(counts['bytes'])}: {corrupt} corrupt "
            f"({counts['repaired']} put out of the way), {unreadable} unreadable, {unverified} without a record"
        )
        fields: dict[str, Any] = dict(counts)
        self._say("scrub", root, text, **fields)

    def rehearsed(self, root: str, held: Slot, evicted: Evicted, budgets: Mapping[str, Evicted]) -> None:
        text = f"holds {_holding(held)}; would evict {counted(evicted.entries, 'entry')}, {format_size(evicted.bytes)}"
        parts = [f"{each.entries} for {budget}" for budget, each in budgets.items()]
        fields: dict[str, Any] = {
            "bytes": held.bytes,
            "entries": held.entries,
            "evicted_entries": evicted.entries,
            "evicted_bytes": evicted.bytes,
            "budgets": {
                budget: {"evicted_entries": each.entries, "evicted_bytes": each.bytes}
                for budget, each in budgets.items()
            },
        }
        self._say("dry-run", root, f"{text} ({', '.join(parts) or 'no budget is exceeded'})", **fields)

    def missing(self, root: str) -> None:
        self._say("dry-run", root, "is not there; would be made", bytes=0, entries=0)

    def _say_error(self, kind: str, message: str, text: str) -> None:
        self._say("error", None, text, level="error", error={"kind": kind, "message": message})

    def _say(self, event: str, root: str | None, text: str, *, level: str = "info", **fields: Any) -> None:
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        if self.as_json:
            # monotonic_ns: the clock of the whole machine, which cannot be set; it orders the lines of several daemons.
            clock = {"time": now, "monotonic_ns": time.monotonic_ns()}
            said = {**clock, "level": level, "event": event, "directory": root, **fields}
            self._write(self._out, json_text(said))
        else:
            text = text if root is None else of_directory(root, text)
            stream = self._out if level == "info" else self._err
            self._write(stream, f"{now} {readable(text, stream)}")

    def _write(self, stream: TextIO, line: str) -> None:
        try:
            with self._writing:  # ticks may run side by side
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError) as error:  # ValueError: closed
            self.lost_lines += 1
            if isinstance(error, OSError) and not isinstance(error, (UnsupportedOperation, BrokenPipeError)):
                self.why_lost = error


class LogToReport(logging.Handler):
    """A handler that reports the warnings of the library."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report.warned(record.getMessage())


def readable(text: str, stream: TextIO) -> str:
    """Returns ``text`` as one line that ``stream`` can encode: a directory may be called anything."""
    return printable(text, stream.encoding)


class UnreportedRepairs:
    """Repairs that have not been reported yet."""

    def __init__(self) -> None:
        self._said = Repairs()
        self._pause = _FIRST_PAUSE_SECONDS
        self._due = 0.0

    def take(self, repairs: Repairs) -> Repairs | None:
        """Returns what to report now, or ``None`` if there is nothing, or it is too early."""
        unreported = repairs.since(self._said)
        if not unreported.shards or time.monotonic() < self._due:
            return None
        self._said = repairs
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return unreported


def _holding(held: Slot) -> str:
    return f"{format_size(held.bytes)} in {counted(held.entries, 'entry')}"


def _in_words(policy: Policy) -> str:
    size = "none" if policy.max_size_bytes is None else format_size(policy.max_size_bytes)
    return size if policy.priority == Policy.priority else f"{size}, evicting by {policy.priority}"


def _in_words_of(repairs: Repairs) -> str:
    surplus_bytes = repairs.drift_bytes - repairs.missing_bytes
    return (
        f"{format_size(repairs.missing_bytes)} were there and not accounted for, {format_size(surplus_bytes)} were "
        f"accounted for and not there; {counted(repairs.drift_entries, 'entry')}"
    )


def _cap(policy: Policy) -> dict[str, Any]:
    return {"max_size_bytes": policy.max_size_bytes, "policy": policy.priority}


def _fields_of(error: Exception) -> dict[str, Any]:
    kind = {"kind": type(error).__name__, "message": str(error)}
    return {**kind, "errno": error.errno} if isinstance(error, OSError) and error.errno is not None else kind


def _flat(summary: Summary) -> dict[str, Any]:
    return {
        "before_bytes": summary.before.bytes,
        "before_entries": summary.before.entries,
        "after_bytes": summary.after.bytes,
        "after_entries": summary.after.entries,
        "repaired_shards": summary.repaired_shards,
        "busy_shards": summary.busy_shards,
        "evicted_entries": summary.evicted.entries,
        "evicted_bytes": summary.evicted.bytes,
        "drift_bytes": summary.repairs.drift_bytes,
        "missing_bytes": summary.repairs.missing_bytes,
        "drift_entries": summary.repairs.drift_entries,
    }
