# SPDX-License-Identifier: Apache-2.0
"""Options of several commands: the directory, ``--json``, ``--yes``, and values that our own parsers read.

Decides the words, so that an option means the same everywhere. A value that a parser refuses is refused in the parser's
words, which name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lockcache.sizes import parse_count, parse_size

if TYPE_CHECKING:
    from lockcache.remote import RemoteUrl

_F = TypeVar("_F", bound=Callable[..., Any])


class WholeNumber(click.IntRange):
    """A number of things, which is so called where it is refused."""

    name = "whole number"


def parsed_by(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Returns a callback for an option whose text ``parse`` understands, or refuses by a ValueError that names it."""

    def convert(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return convert


def each(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[Any, ...]]:
    """Returns a callback like :func:`parsed_by`, for an option that may be given several times."""
    convert = parsed_by(parse)
    return lambda context, parameter, texts: tuple(convert(context, parameter, text) for text in texts)


def _parse_duration(text: str) -> float:
    from lockcache.sizes import parse_duration

    return parse_duration(text)


def _check_size(text: str) -> str:
    parse_size(text)
    return text


#: For ``callback=``: a whole number, from "20", "1.5M" and the like.
count = parsed_by(parse_count)
#: For ``callback=``: bytes, from "10G" and the like.
size = parsed_by(parse_size)
#: For ``callback=``: the text of a size, as it was written, for a program that parses it too.
checked_size = parsed_by(_check_size)
#: For ``callback=``: seconds, from "30d" and the like.
duration = parsed_by(_parse_duration)


class Directory(click.Path):
    """A directory, or what will be one. One that cannot be read is for the command to explain."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a file, a bundle by its name."""
        from lockcache.filestream.bundle import is_bundle

        if isinstance(value, str) and is_bundle(value):
            self.fail(f"{value!r} is a bundle, and a directory is wanted; lockcache bundle ls {value} lists it")
        return super().convert(value, param, ctx)


def directory(command: _F) -> _F:
    """Returns the argument ``[DIR]``, given as ``directory: str | None``; a shell completes it with directories."""
    return click.argument("directory", metavar="[DIR]", required=False, type=Directory())(command)


def as_json(command: _F) -> _F:
    """Returns ``--json``, given as ``as_json: bool``."""
    return click.option("--json", "-j", "as_json", is_flag=True, help="Print one JSON object.")(command)


def yes(command: _F) -> _F:
    """Returns ``--yes``, given as ``yes: bool``; for :func:`lockcache.cli.output.ask`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def server_of(remote: str | None) -> RemoteUrl:
    """Returns the server that ``--remote`` or ``$LOCKCACHE_REMOTE`` names. Raises :class:`click.UsageError`."""
    from lockcache.remote import configured_url, parse_url, require_client  # few commands ask a server

    url = configured_url() if remote is None else parse_url(remote)
    if url is None:
        raise click.UsageError("no server: give --remote URL or set LOCKCACHE_REMOTE")
    try:
        require_client(url)
    except ModuleNotFoundError as error:
        raise click.UsageError(str(error)) from None
    return url
