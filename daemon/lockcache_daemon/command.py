# SPDX-License-Identifier: Apache-2.0
"""The options of ``lockcache-daemon``, its help, and its exit codes.

Decides the command line, and that each mistake is one line on stderr which names the value and what is accepted. Parses
and starts; the settings are those of :mod:`.settings.model`, with one option for each field; :mod:`.run` does the work.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from io import UnsupportedOperation
from typing import Any, Final

import click

from lockcache import __version__
from lockcache.cli.output import reason
from lockcache.cli.usage import did_you_mean, usage_in_words
from lockcache.errors import LockcacheError
from lockcache.filestream.disk import DISK_FULL
from lockcache_daemon.deploy import FOLDER, deployment_files, read_file, systemd_unit
from lockcache_daemon.errors import AlreadyServedError
from lockcache_daemon.observe import Report, readable
from lockcache_daemon.run import Request, carry_out
from lockcache_daemon.settings import DirectorySettings, Settings, SettingsError, Sources, settings_of, variable_of

_BAD_OPTION: Final = 2
_ALREADY_SERVED: Final = 3

_HELP = """
Keep directories of lockcache, Triton, vLLM and others within budgets.

A budget for each DIR: --max-size, --max-entries, --min-free, --max-age, --total,
or the size limit that DIR has already. DIR: by default those of --config, else
$LOCKCACHE_DIR, else ~/.cache/lockcache.
"""

_EPILOG = """
\b
Examples:
  lockcache-daemon --max-size 10G ~/.cache/cuda-python/program-cache
  lockcache-daemon --max-age 30d --min-free 5% --total 50G /shared/kernels
  lockcache-daemon --max-size 10G --once           (from cron or a CI job)

\b
10G is 10**10 bytes, 10GiB is 10 * 2**30. As variables: LOCKCACHE_MAX_SIZE.
SIGHUP reads --config again. Exit codes: 0 done, or ended by a signal; 1
--once failed in part; 2 a mistake in an option or a DIR; 3 another daemon has
a DIR. Deploy: lockcache-daemon files. More: man lockcache-daemon.
"""


def setting_options() -> list[click.Option]:
    """Returns an option for each setting, those of directories first. Values stay text: :class:`Sources` parses it."""
    return [*_options(DirectorySettings), *_options(Settings)]


def with_settings(command: click.Command) -> click.Command:
    """Put the options of the settings in front of the options that ``command`` has."""
    command.params[:0] = setting_options()
    return command


def _options(model: type[DirectorySettings | Settings]) -> Iterator[click.Option]:
    for key, (_, setting) in settings_of(model).items():
        default = "" if setting.default is None else f" [default: {setting.default}]"
        is_switch = not setting.metavar
        how: dict[str, Any] = {"is_flag": True, "default": None} if is_switch else {"metavar": setting.metavar}
        yield click.Option([f"--{key.replace('_', '-')}", key], help=setting.help + default, **how)


_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


@with_settings
@click.command("lockcache-daemon", help=_HELP, epilog=_EPILOG, context_settings=_CONTEXT)
@click.option("--config", metavar="FILE", help="Settings in TOML.")
@click.option("--once", is_flag=True, help="One complete pass, then exit.")
@click.option("--scrub", is_flag=True, help="With --once: verify every entry too.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be evicted.")
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(readable=False))
def daemon_command(
    config: str | None, once: bool, scrub: bool, dry_run: bool, directories: tuple[str, ...], **settings: Any
) -> int:
    """Carry out the request. Returns the exit code."""
    if scrub and (dry_run or not once):
        raise click.UsageError("--scrub goes with --once; a daemon that stays verifies at its --scrub-rate")
    given = {key: value for key, value in settings.items() if value is not None}
    for key in ("metrics", "standby"):
        # As a flag only: a file of settings may well be that of a daemon that stays.
        if once and given.get(key):
            raise click.UsageError(f"--{key} is for a daemon that stays, and not for --once")
    file = config if config is not None else os.environ.get(variable_of("config")) or None
    return carry_out(Request(Sources(given, directories, file), is_once=once, is_dry_run=dry_run, is_scrub=scrub))


@click.command("systemd-unit", context_settings=_CONTEXT)
@click.option("--user", is_flag=True, help="A user's own daemon, for ~/.cache.")
def _print_unit(user: bool) -> None:
    """Print a systemd unit that starts this installation of the daemon. Its first lines say how to install it.

    \b
    Examples:
      lockcache-daemon systemd-unit > /etc/systemd/system/lockcache-daemon.service
      lockcache-daemon systemd-unit --user > ~/.config/systemd/user/lockcache-daemon.service
    """
    click.echo(systemd_unit(user=user), nl=False)


@click.command("files", context_settings=_CONTEXT)
@click.argument("name", required=False)
@click.option("--path", is_flag=True, help="Print where they are installed.")
def _print_file(name: str | None, path: bool) -> None:
    """List the deployment files that come with the daemon, or print one: units, Slurm scripts, Kubernetes manifests,
    Prometheus rules, a Grafana dashboard, tmpfiles.d.

    \b
    Examples:
      lockcache-daemon files
      lockcache-daemon files grafana/lockcache.json > lockcache.json
      kubectl kustomize "$(lockcache-daemon files --path)/kustomize"
    """
    if path:
        click.echo(FOLDER / name if name else FOLDER)
    elif name is None:
        click.echo("\n".join(deployment_files()))
    else:
        try:
            click.echo(read_file(name), nl=False)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


# Words that services understand, and where what they ask for is.
_OF_SERVICES: Final = {
    "help": "--help lists the options",
    "reload": "send SIGHUP to the daemon",
    "restart": "systemctl restart lockcache-daemon does it, where it is a service",
    "start": "the daemon runs in the foreground, until a signal ends it",
    "status": "lockcache stats DIR shows a directory and its daemon",
    "stop": "send SIGTERM to the daemon",
}
_TOOLS: Final = {"systemd-unit": _print_unit, "files": _print_file}


def run(arguments: Sequence[str]) -> int:
    """Run with these arguments. Returns the exit code. An error that an operator can fix is one line on stderr.

    With ``--json`` the error is an event on stdout as well, where readers of the log look for it.
    """
    try:
        return _run(arguments)
    except _RefusedError as refused:
        lines = [readable(" ".join(line.split()), sys.stderr) for line in refused.lines]
        if _wants_json(arguments):
            report = Report(as_json=True, out=sys.stdout, err=sys.stderr)
            for line in lines:
                report.refused(line, refused.code)
        for line in lines:
            click.echo(f"lockcache-daemon: {line}", err=True)
        return refused.code


class _RefusedError(Exception):
    def __init__(self, lines: Sequence[str], code: int) -> None:
        super().__init__(*lines)
        self.lines = lines
        self.code = code


def _wants_json(arguments: Sequence[str]) -> bool:
    """Returns whether to report in JSON, read without the settings, which may be what is wrong."""
    return "--json" in arguments or os.environ.get(variable_of("json"), "").lower() in ("true", "yes", "on", "1")


def _run(arguments: Sequence[str]) -> int:
    # The names of tools stand where a directory would; a directory of such a name is written ./files.
    tool = _TOOLS.get(arguments[0]) if arguments else None
    meant = [] if tool or not arguments else difflib.get_close_matches(arguments[0], _TOOLS, 1, 0.75)
    if meant and not os.path.lexists(arguments[0]):
        words = f"No such directory {arguments[0]!r}{did_you_mean(meant)}"
        raise _RefusedError([f"{words}; see lockcache-daemon --help"], _BAD_OPTION)
    if arguments and arguments[0] in _OF_SERVICES and not os.path.lexists(arguments[0]):
        words = f"No such command {arguments[0]!r}: {_OF_SERVICES[arguments[0]]}; a directory is written"
        raise _RefusedError([f"{words} ./{arguments[0]}; see lockcache-daemon --help"], _BAD_OPTION)
    try:
        if tool is not None:
            tool.main(list(arguments[1:]), prog_name=f"lockcache-daemon {arguments[0]}", standalone_mode=False)
            return 0
        result = daemon_command.main(list(arguments), prog_name="lockcache-daemon", standalone_mode=False)
    except click.ClickException as error:
        words = usage_in_words(error, arguments) if isinstance(error, click.UsageError) else error.format_message()
        raise _RefusedError([words], _BAD_OPTION) from error
    except SettingsError as error:
        raise _RefusedError(error.lines, _BAD_OPTION) from error
    except AlreadyServedError as error:
        raise _RefusedError([str(error)], _ALREADY_SERVED) from error
    except (OSError, LockcacheError) as error:
        raise _RefusedError([reason(error) + _hint(error)], _BAD_OPTION) from error
    except click.Abort:  # Ctrl-C before signals were handled
        return 128 + signal.SIGINT
    return result if isinstance(result, int) else 0


def _hint(error: Exception) -> str:
    if isinstance(error, LockcacheError | UnsupportedOperation) or not isinstance(error, OSError):
        return ""
    if error.errno in DISK_FULL:
        return "; the disk is full, or your quota: free some 100 KB there for what the daemon itself has to write"
    return "; DIR must be a directory that you may write, or make"
