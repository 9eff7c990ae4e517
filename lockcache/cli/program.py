# SPDX-License-Identifier: Apache-2.0
"""The command group: the list of commands, and the handling of errors.

Decides that an error which an operator can fix is one line on stderr which names it, and the exit code. Loads a
command's module when that command is wanted: completing a word at a prompt must not wait for tables and validators (0.2
s).

To add a command: a module in :mod:`lockcache.cli.commands` whose ``command`` is a click command, and its name below.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from lockcache import LockcacheError, __version__
from lockcache.cli.output import plain, reason
from lockcache.cli.signals import give_up_stdout, interrupts_raise
from lockcache.cli.usage import did_you_mean, usage_in_words
from lockcache.errors import LockTimeoutError

#: Each the name of a module in lockcache.cli.commands.
COMMANDS: Final = (
    "bundle",
    "clear",
    "completion",
    "config",
    "doctor",
    "env",
    "evict",
    "import-jax",
    "import-triton",
    "inspect",
    "key",
    "ls",
    "manifest",
    "pack",
    "path",
    "pin",
    "policy",
    "promote",
    "recount",
    "rm",
    "run",
    "stats",
    "top",
    "unpack",
    "unpin",
    "verify",
    "why",
)

# The names of the commands elsewhere.
_SYNONYMS: Final = {
    "delete": "rm", "du": "stats", "gc": "evict", "help": "--help", "info": "inspect", "list": "ls",
    "prefetch": "manifest", "prune": "evict", "purge": "clear", "remove": "rm", "show": "inspect", "status": "stats",
    "version": "--version",
}  # fmt: skip

# Longer than any first sentence.
_LONGEST_HELP: Final = 1000

_FAILED: Final = 1
_BAD_INPUT: Final = 2

# The system's errors for a path that is mistyped, forbidden or in the way. Any other error (EIO, ENOSPC, a lock that
# hangs) is not a mistake of the user.
_MISTAKES: Final = (
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)

_EPILOG = """DIR defaults to $LOCKCACHE_DIR, else to lockcache in the user cache directory.

\b
Exit codes: 0 done; 1 not done (you answered no, an I/O error, a lock
timeout); 2 the command line is wrong; 130 Ctrl-C (what was done stays, no
entry is half written); 141 the reader of the output went away.
"""


class _ReaderLeftError(Exception):
    """stdout is a pipe that nobody reads any more."""


@contextlib.contextmanager
def _telling_who_left() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderLeftError from error


class _Commands(click.Group):
    """Finds commands by name, and loads them when they are wanted."""

    # click turns the system's own errors into exit code 1. Help is printed while a context is made.
    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        with _telling_who_left():
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _telling_who_left():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with whole sentences, wrapped: click's own list cuts them off with "..."."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_LONGEST_HELP)) for name, each in found if each])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"lockcache.cli.commands.{cmd_name.replace('-', '_')}").command
        # The whole first sentence in the list of commands, which click would cut short.
        command.short_help = command.short_help or re.split(r"(?<=\.)\s", command.help or "")[0]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            close = [_SYNONYMS[name]] if name in _SYNONYMS else _similar(name)
            raise click.UsageError(f"No such command {name!r}{did_you_mean(close)}", ctx)
        resolved = super().resolve_command(ctx, args)
        interrupts_raise()  # it is loaded
        return resolved


def _similar(name: str) -> list[str]:
    """Returns the commands of which ``name`` is the first word, else the one that is most like it, if any is."""
    return [each for each in COMMANDS if each.startswith(f"{name}-")] or difflib.get_close_matches(name, COMMANDS, 1)


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, "--version", "-V", message="%(prog)s %(version)s")
def cli() -> None:
    """Manage directories of compiled GPU kernels that many processes share.

    \b
    Examples:
      lockcache stats
      lockcache ls --sort size --limit 20
      lockcache inspect 3f2a9c41
      lockcache evict --older-than 30d --dry-run
      lockcache policy set --max-size 10G /scratch/kernels
    """


def run(arguments: Sequence[str]) -> int:
    """Run with these arguments; the exit code. An error that an operator can fix is one line on stderr."""
    try:
        result = cli.main(list(arguments), prog_name="lockcache", standalone_mode=False)
        sys.stdout.flush()  # here, where a reader that went away can still be handled
    except click.Abort as abort:
        return 128 + signal.SIGINT if isinstance(abort.__cause__, KeyboardInterrupt) else _FAILED
    except click.ClickException as error:
        return _refuse_usage(error, arguments)
    except (BrokenPipeError, _ReaderLeftError):  # `lockcache ls | head -1`: the reader has read enough
        give_up_stdout()
        return 128 + signal.SIGPIPE  # as of programs that the signal ends
    except (LockcacheError, OSError, ValueError) as error:
        code = _refuse(*_judge(error))
        give_up_stdout()
        return code
    return result if isinstance(result, int) else 0


def _judge(error: Exception) -> tuple[str, int]:
    """Returns an error in words, and whether it is a mistake of the user."""
    if isinstance(error, LockTimeoutError):
        return str(error), _FAILED
    is_mistake = isinstance(error, LockcacheError) or not isinstance(error, OSError) or error.errno in _MISTAKES
    return reason(error), _BAD_INPUT if is_mistake else _FAILED


def _refuse_usage(error: click.ClickException, arguments: Sequence[str]) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = error.format_message()
    if not isinstance(error, click.UsageError) or context is None:
        return _refuse(message, error.exit_code)
    if not message or message == context.get_help():  # a group without a command: click raises its help
        click.echo(context.get_help(), err=True)
        return _BAD_INPUT
    return _refuse(usage_in_words(error, arguments), _BAD_INPUT)


def _refuse(message: str, code: int) -> int:
    click.echo(f"lockcache: {plain(' '.join(message.split()))}", err=True)
    return code
