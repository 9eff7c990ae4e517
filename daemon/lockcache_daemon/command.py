"""The options of ``lockcache-daemon``, its help, and its exit codes.

Decides what an operator may say, and that each mistake is one line on stderr which names the value and what is
accepted. Parses and starts; what the daemon does is :mod:`.keeper`'s and :mod:`.loop`'s.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from lockcache.arguments import resolve_path
from lockcache.errors import LockcacheError
from lockcache.sizes import SIZES_IN_WORDS, parse_duration, parse_share, parse_size
from lockcache_daemon.instance import AlreadyServedError
from lockcache_daemon.layouts import LAYOUTS, choose_layout, make_keeper, view
from lockcache_daemon.loop import pass_once, serve
from lockcache_daemon.progress import counting_progress
from lockcache_daemon.rehearsal import rehearse
from lockcache_daemon.report import LogToReport, Report, describe, readable
from lockcache_daemon.rules import Rules
from lockcache_daemon.signals import Stopped, StopSignals

__all__ = ["run"]

_INCOMPLETE: Final = 1
_BAD_OPTION: Final = 2
_ALREADY_SERVED: Final = 3

# One lock file for each shard, the page, and those that a scan opens.
_DESCRIPTORS_PER_DIRECTORY: Final = 300

_HELP = f"""
Keep cache directories under their cap.

Writes the cap into each DIR's policy, which every process obeys from its next write. Then, every --interval, reads the
accounting and, when it is past the high watermark (half-way between --low-watermark and the cap), evicts the least
recently used entries down to the low watermark. Repairs the accounting on the way: what cuda.core's own cache, which
knows of no cap, wrote into the same directory, and what killed processes left behind.

DIR: directories of lockcache's, of cuda.core's FileStreamProgramCache, or of pyptx's; made if missing. Default:
$LOCKCACHE_DIR, else lockcache in the user cache directory. A DIR that is deleted meanwhile is made anew. A policy that
is damaged, removed or set to none is replaced by --max-size, and the log says so; another cap counts.

Which of them a DIR is shows in what it holds: entries/, or <hash>.json, .ptx and .cubin. An empty one is lockcache's
own, unless --layout says otherwise. Nobody accounts in pyptx's: it is walked when it changed, and an entry is evicted
with all of its files.

\b
Sizes: {SIZES_IN_WORDS}.
  10G is 10,000,000,000 bytes, as for ccache and Kubernetes: never more than
  what somebody expects who reads it as 10GiB.

\b
Examples:
  lockcache-daemon --max-size 10G
  lockcache-daemon --max-size 10G ~/.cache/cuda-python/program-cache
  lockcache-daemon --max-size 10G --layout pyptx ~/.cache/pyptx
  lockcache-daemon --max-size 200GiB --interval 2s --json /shared/kernels
  lockcache-daemon --max-size 10G --once           (from cron or a CI job)
  lockcache-daemon --max-size 2G --dry-run         (what would go?)

\b
Signals: SIGTERM, SIGINT (Ctrl-C) and SIGHUP end it within a second and leave
nothing half done. SIGKILL does no harm either: the next start repairs.

\b
Exit codes:
  0    ended by a signal; or the pass of --once, --dry-run is done
  1    --once could not do all of its work (an I/O error, a lock that hangs)
  2    a bad option; or a DIR that is unsafe, no directory, of a newer format,
       or not of the --layout; or one that a full disk keeps --once from opening
  3    another daemon keeps one of the DIRs
  130, 143 and 129   --once or --dry-run was ended by SIGINT, SIGTERM, SIGHUP
"""


def _by(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str], Any]:
    """A callback for options whose text one of our parsers understands, or refuses in its own words."""

    def convert(context: click.Context, parameter: click.Parameter, text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return convert


def _parse_interval(text: str) -> float:
    seconds = parse_duration(text)
    if not 0.01 <= seconds <= 3600:
        raise ValueError(f"{text!r} is out of range; accepted: 10ms to 1h, such as 0.5s")
    return seconds


@click.command(
    "lockcache-daemon", help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.option(
    "--max-size", metavar="SIZE", callback=_by(parse_size), required=True, help="The cap of each DIR, such as 10G."
)
@click.option(
    "--interval",
    metavar="DURATION",
    callback=_by(_parse_interval),
    default="0.5s",
    show_default=True,
    help="Between two looks: 10ms to 1h.",
)
@click.option(
    "--low-watermark",
    metavar="SHARE",
    callback=_by(parse_share),
    default="90%",
    show_default=True,
    help="Share of the cap at which a sweep ends: 1% to 100%.",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", *LAYOUTS]),
    default="auto",
    show_default=True,
    help="Whose files are in each DIR; auto: whose they look like.",
)
@click.option(
    "--once", is_flag=True, help="One complete pass: recount everything, sweep if there is need, say what was done."
)
@click.option(
    "--dry-run", is_flag=True, help="Change nothing on disk, not the policy either; say what would be evicted."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path())
def _command(
    max_size: int,
    interval: float,
    low_watermark: float,
    layout: str,
    once: bool,
    dry_run: bool,
    as_json: bool,
    directories: tuple[str, ...],
) -> int:
    report = Report(as_json=as_json, out=sys.stdout, err=sys.stderr)
    logging.getLogger("lockcache").addHandler(LogToReport(report))
    rules = Rules(max_size, low_watermark, interval)
    roots = {root: choose_layout(root, layout, report.warned) for root in _roots(directories)}
    _allow_descriptors(len(roots))
    with StopSignals() as stop:
        if dry_run:
            return _until_stopped(stop, lambda: _rehearse_all(roots, rules, report, stop))
        keepers = [make_keeper(kind, root, rules, report, stop, 1 / len(roots)) for root, kind in roots.items()]
        if once:
            return _until_stopped(stop, lambda: 0 if pass_once(keepers, report, counting_progress) else _INCOMPLETE)
        serve(keepers, interval, stop)
        if stop.number is not None:
            report.stopped(signal.Signals(stop.number).name)
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run with these arguments; the exit code. What an operator can mend is one line on stderr."""
    try:
        result = _command.main(list(arguments), prog_name="lockcache-daemon", standalone_mode=False)
    except click.ClickException as error:
        return _refuse(error.format_message(), _BAD_OPTION)
    except AlreadyServedError as error:
        return _refuse(str(error), _ALREADY_SERVED)
    except (OSError, LockcacheError) as error:
        return _refuse(describe(error) + _hint(error), _BAD_OPTION)
    except click.Abort:  # Ctrl-C before signals were ours
        return 128 + signal.SIGINT
    return result if isinstance(result, int) else 0


def _hint(error: Exception) -> str:
    if isinstance(error, LockcacheError) or not isinstance(error, OSError):
        return ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "; the disk is full, or your quota: free some 100 KB there for what the daemon itself has to write"
    return "; DIR must be a directory that you may write, or make"


def _until_stopped(stop: StopSignals, work: Callable[[], int]) -> int:
    try:
        code = work()
    except Stopped:
        code = 0
    return code if stop.number is None else 128 + stop.number


def _rehearse_all(roots: Mapping[str, str], rules: Rules, report: Report, stop: StopSignals) -> int:
    for root, layout in roots.items():
        rehearse(root, rules, report, stop, view(layout))
    return 0


def _roots(directories: Sequence[str]) -> list[str]:
    """Absolute paths, each directory once: the second keeper of one would find it kept by the first."""
    try:
        paths = [resolve_path(directory) for directory in directories] or [resolve_path(None)]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="DIR") from error
    distinct: dict[str, str] = {}
    for path in paths:
        distinct.setdefault(os.path.realpath(path), path)
    return list(distinct.values())


def _allow_descriptors(directories: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 64 + directories * _DESCRIPTORS_PER_DIRECTORY
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _refuse(message: str, code: int) -> int:
    click.echo(f"lockcache-daemon: {readable(' '.join(message.split()))}", err=True)
    return code
