# SPDX-License-Identifier: Apache-2.0
"""The manual pages, ``docs/man/*.1``, which the wheel installs: made of the programs' own options by ``make man``.

``docs/man/PROGRAM.txt`` has further sections, in the form of click's help: paragraphs, and blocks behind ``\\b`` that
stay as they are. Its DESCRIPTION takes the place of the program's help.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from lockcache.cli.program import cli
from lockcache_daemon.command import daemon_command
from lockcache_stress.commands.scenarios import cli as stress_command

FOLDER: Final = Path(__file__).parent / "man"
PROGRAMS: Final[dict[str, tuple[click.Command, str]]] = {
    "lockcache": (cli, "look after a directory of compiled GPU kernels"),
    "lockcache-daemon": (daemon_command, "keep cache directories within their budgets"),
    "lockcache-stress": (stress_command, "try a cache directory with real processes, compilers and kills"),
}


def render(name: str, command: click.Command, summary: str, more: str) -> str:
    """Returns the page of one program in the language of man."""
    context = click.Context(command, info_name=name, **command.context_settings)
    sections = dict(_sections(more))
    opening = sections.pop("DESCRIPTION", None) or command.help or ""
    lines = [
        f'.TH {name.upper()} 1 "" lockcache "User Commands"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(summary)}",
    ]
    lines += [".SH SYNOPSIS", f".B {_roff(name)}", _roff(" ".join(command.collect_usage_pieces(context)))]
    lines += [".SH DESCRIPTION", *_paragraphs(opening), ".SH OPTIONS", *_options(command, context)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                lines += _command(f"{name} {each}", found, context)
    for heading, text in sections.items():
        lines += [f".SH {heading}", *_paragraphs(text)]
    if command.epilog and not more:
        lines += [".SH NOTES", *_paragraphs(command.epilog)]
    others = sorted(PROGRAMS.keys() - {name})
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{_roff(each)}\\fR(1)" for each in others)]
    return "\n".join(lines) + "\n"


def _command(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield f".SS {_roff(name)} {_roff(' '.join(command.collect_usage_pieces(context)))}"
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from _command(f"{name} {each}", found, context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from (".TP", f".B {_roff(record[0])}", _roff(record[1]) or "\\&")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^# ", text, flags=re.MULTILINE)[1:]:
        heading, _, rest = part.partition("\n")
        yield heading.strip(), rest.strip("\n")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith(("\b", "\\b\n")):
            lines = paragraph.splitlines()[1:]
            yield from (".PP", ".nf", *map(_roff, lines), ".fi")
        elif paragraph.strip():
            yield from (".PP", _roff(" ".join(paragraph.split())))


def _roff(text: str) -> str:
    # A line may be broken behind each of many choices.
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("|", "|\\:")
    return re.sub(r"^(?=[.'])", "\\\\&", text, flags=re.MULTILINE)


def pages() -> dict[Path, str]:
    """Returns every page, as it should be."""
    made = {}
    for name, (command, summary) in PROGRAMS.items():
        more = FOLDER / f"{name}.txt"
        made[FOLDER / f"{name}.1"] = render(name, command, summary, more.read_text() if more.exists() else "")
    return made


def main() -> int:
    """Write the pages; with ``--check``, say which are not as they should be."""
    parser = argparse.ArgumentParser(description="Make the manual pages of the programs' own options.")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    texts = pages()
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        print(f"man: {path.name} {'disagrees with its program: make man' if given.check else 'made'}")
        if not given.check:
            path.write_text(texts[path])
    return int(given.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
