# SPDX-License-Identifier: Apache-2.0
"""Mistakes on a command line, in one style for all programs: what is wrong, what was probably meant, where help is.

click suggests by letters alone (``--label`` for ``--all``), and asks in three styles. Here a suggestion is an option
that means the same, else one that begins so, else one that differs in a letter or two.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import click

# By what was typed: options that mean it, of which a command has one at most, and other commands in full.
_MEANT: Final = {
    "--age": ("--older-than", "--max-age"),
    "--all": ("lockcache clear", "--sort"),
    "--force": ("--yes",),
    "--keep-newer": ("--older-than",),
    "--long": ("--full",),
    "--max-age": ("--older-than",),
    "--max-size": ("--to",),
    "--size": ("--to", "--max-size"),
    "--unused": ("--older-than", "--max-age"),
    "-f": ("--yes",),
}
# The commands that have one of those commands in their stead.
_CLEARS: Final = ("evict", "rm")

# Below this, two words are not one misspelled: --all and --label are 0.67.
_ALIKE: Final = 0.7
_SIZE: Final = re.compile(r"[0-9]+(\.[0-9]+)?\s*([KMGT]i?)?B?", re.IGNORECASE | re.ASCII)
_EXTRA: Final = "Got unexpected extra argument"
_SIZE_OPTIONS: Final = ("--to", "--max-size")


def usage_in_words(error: click.UsageError, arguments: Sequence[str], command: str = "") -> str:
    """Returns what is wrong with a command line, and where its help is: one line.

    ``command``: the name to show for help, by default that of the command where the mistake is.
    """
    context = error.ctx
    message = error.format_message().rstrip(".")
    shown = command or (context.command_path if context is not None else "")
    if isinstance(error, click.NoSuchOption):
        message = f"No such option {error.option_name!r}"
    if context is not None:
        message += _hint(error, context, arguments)
    return f"{message}; see {shown} --help" if shown else message


def did_you_mean(candidates: Iterable[str]) -> str:
    """Returns the suggestion of one or a few words, in parentheses; nothing where there is none."""
    words = " or ".join(candidates)
    return f" (did you mean {words}?)" if words else ""


def _hint(error: click.UsageError, context: click.Context, arguments: Sequence[str]) -> str:
    options = _options_of(context.command)
    if isinstance(error, click.NoSuchOption):
        return _option_hint(error.option_name, options, context, arguments)
    if error.message.startswith(_EXTRA):
        option = next((each for each in _SIZE_OPTIONS if each in options), None)
        size = next((each for each in arguments if _SIZE.fullmatch(each)), None)
        return f" (did you mean {option} {size}?)" if option and size else ""
    if isinstance(context.command, click.Group) and context.parent is not None and "did you mean" not in error.message:
        return f"; there are {', '.join(context.command.list_commands(context))}"
    return ""


def _option_hint(typed: str, options: Sequence[str], context: click.Context, arguments: Sequence[str]) -> str:
    if isinstance(context.command, click.Group):
        return did_you_mean(_of_a_command(typed, context, arguments) or _similar(typed, options))
    if typed == "--dir" and any(
        isinstance(each, click.Argument) and each.metavar in ("[DIR]", "[DIR]...") for each in context.command.params
    ):
        return f": DIR is an argument, as in {context.command_path} DIR"
    meant = [each for each in _MEANT.get(typed, ()) if each in options]
    if not meant and context.info_name in _CLEARS:
        meant = [each for each in _MEANT.get(typed, ()) if " " in each]
    return did_you_mean(meant[:1] or _similar(typed, options))


def _of_a_command(typed: str, context: click.Context, arguments: Sequence[str]) -> list[str]:
    """Returns the line with an option behind the command that has it, where it stands in front."""
    group = context.command
    names = group.list_commands(context) if isinstance(group, click.Group) else []
    for name in (each for each in arguments if each in names):
        command = group.get_command(context, name) if isinstance(group, click.Group) else None
        if command is not None and typed in _options_of(command):
            return [f"{context.command_path} {name} {typed}"]
    return []


def _options_of(command: click.Command) -> list[str]:
    return [name for each in command.params if isinstance(each, click.Option) for name in each.opts] + ["--help"]


def _similar(typed: str, options: Sequence[str]) -> list[str]:
    """Returns the options that begin with what was typed, else the one that is spelled almost so, else none."""
    plain = typed.replace("_", "-").lower()
    bare = {each.replace("-", ""): each for each in options}
    if plain.replace("-", "") in bare:
        return [bare[plain.replace("-", "")]]
    begun = [each for each in options if len(plain) > 3 and each.startswith(plain)]
    return begun or difflib.get_close_matches(plain, options, 1, _ALIKE)
