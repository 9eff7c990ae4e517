# SPDX-License-Identifier: Apache-2.0
"""The work of ``lockcache-daemon``, by its settings: a dry run, one pass, or serving and reloading.

One complete pass has a progress bar, on a terminal only, so that logs stay free of it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lockcache.arguments import unknown_in_words, unknown_variables
from lockcache.cli.progress import step_bar
from lockcache.errors import in_words
from lockcache.lowlevel import SHARDS
from lockcache_daemon.budgets import rehearse_all
from lockcache_daemon.keeper import refuse_as_root
from lockcache_daemon.observe import LogToReport, Report
from lockcache_daemon.run.keepers import KeeperSet
from lockcache_daemon.run.loop import pass_once, serve
from lockcache_daemon.run.services import services_for, try_metrics_file, write_metrics_once
from lockcache_daemon.run.systemd import Notifier
from lockcache_daemon.settings import Settings, SettingsError, Sources
from lockcache_daemon.signals import Stopped, StopSignals
from lockcache_daemon.stores import choose_layout

_INCOMPLETE: Final = 1

# One lock file for each shard, the accounting page, and the files that a scan opens.
_DESCRIPTORS_PER_DIRECTORY: Final = 300

# A sweep makes an object for each entry, and no reference cycles: at the usual 700 the search for cycles takes a tenth
# of its time.
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000


@dataclass(frozen=True)
class Request:
    """The request of a command line."""

    sources: Sources
    is_once: bool = False
    is_dry_run: bool = False
    #: Whether the one pass scrubs too.
    is_scrub: bool = False


def carry_out(request: Request) -> int:
    """Carry out the request. Returns the exit code.

    Raises :class:`SettingsError`, and the errors of opening a directory.
    """
    unknown = unknown_variables(os.environ)
    try:
        settings = request.sources.load()
    except SettingsError as error:  # perhaps a setting is missing because its variable is misspelled
        raise SettingsError([*error.lines, *(unknown_in_words(*each) for each in unknown.items())]) from None
    report = Report(as_json=settings.as_json, out=sys.stdout, err=sys.stderr)
    logging.getLogger("lockcache").addHandler(LogToReport(report))
    for name, meant in unknown.items():
        report.unknown_variable(name, meant)
    _allow_descriptors(len(settings.directories))
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    is_serving = not (request.is_dry_run or request.is_once)
    hangup_reloads = is_serving and request.sources.config is not None
    with StopSignals(hangup_reloads=hangup_reloads, on_progress=report.board.beat) as stop:
        if request.is_dry_run:
            return _until_stopped(stop, lambda: _rehearse(settings, report, stop))
        keeper_set = KeeperSet(settings, report, stop)
        if request.is_once:
            return _until_stopped(stop, lambda: _pass_once(keeper_set, report, scrubs=request.is_scrub))
        _serve(keeper_set, request.sources, report, stop)
        if stop.number is not None:
            report.stopped(signal.Signals(stop.number).name)
    return 0


def _pass_once(keeper_set: KeeperSet, report: Report, *, scrubs: bool) -> int:
    if keeper_set.settings.metrics_file is not None:
        try_metrics_file(keeper_set.settings.metrics_file, report.board)
    with step_bar("counting", len(keeper_set.keepers) * (1 + scrubs) * SHARDS) as advance:
        is_complete = pass_once(keeper_set, report, lambda: advance(1), scrubs=scrubs)
    if keeper_set.settings.metrics_file is not None:
        write_metrics_once(keeper_set.settings.metrics_file, report.board)
    if report.why_lost is not None:
        return _lost(f"what was done could not be written: {in_words(report.why_lost)}")
    return 0 if is_complete else _INCOMPLETE


def _serve(keeper_set: KeeperSet, sources: Sources, report: Report, stop: StopSignals) -> None:
    with Notifier() as notifier:
        report.board.beats.append(notifier.alive)
        if notifier.alive_seconds is not None:
            stop.silence_seconds = min(stop.silence_seconds, notifier.alive_seconds)

        def reload() -> Settings | None:
            notifier.reloading()
            return _reload(sources, report)

        serve(keeper_set, services_for(keeper_set.settings, report, notifier), stop, reload)


def _reload(sources: Sources, report: Report) -> Settings | None:
    try:
        settings = sources.load()
    except SettingsError as error:
        for line in error.lines:
            report.not_reloaded(line)
        return None
    _allow_descriptors(len(settings.directories))
    report.as_json = settings.as_json
    report.reloaded(len(settings.directories))
    return settings


def _until_stopped(stop: StopSignals, work: Callable[[], int]) -> int:
    try:
        code = work()
    except Stopped:
        code = 0
    return code if stop.number is None else 128 + stop.number


def _rehearse(settings: Settings, report: Report, stop: StopSignals) -> int:
    for each in settings.directories:
        refuse_as_root(each.path, each.group)
    layouts = {
        each.path: choose_layout(each.path, each.layout, report.warned, has_namespaces=bool(each.namespaces))
        for each in settings.directories
    }
    rehearse_all(settings, layouts, report, stop)
    if report.lost_lines:
        return _lost("the list of entries to evict could not be written to standard output")
    return 0


def _lost(what: str) -> int:
    with contextlib.suppress(OSError):  # of stderr too
        sys.stderr.write(f"lockcache-daemon: {what}\n")
    return _INCOMPLETE


def _allow_descriptors(directories: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 64 + directories * _DESCRIPTORS_PER_DIRECTORY
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
