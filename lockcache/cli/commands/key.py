# SPDX-License-Identifier: Apache-2.0
"""``lockcache key``: files of keys that sign and verify entries.

Keeps a key from anybody else's eyes: it is written into a file of mode 0600 and never printed.
"""

from __future__ import annotations

import os
import time
from typing import Final

import click

from lockcache.cli import options
from lockcache.cli.output import print_json
from lockcache.filestream import open_output
from lockcache.filestream.disk import naming, write_all
from lockcache.filestream.entry import encode_key, new_key, read_key_file

_FILE: Final = click.argument("file", type=click.Path(dir_okay=False))
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


@click.group("key")
def command() -> None:
    """Make keys that sign entries, so that nobody without a key can plant a kernel.

    All processes that share a directory need the same file: LOCKCACHE_SIGNING_KEY_FILE=FILE.

    \b
    Examples:
      lockcache key new ~/.config/lockcache.key
      lockcache key rotate ~/.config/lockcache.key
    """


@command.command("new")
@_FILE
@options.as_json
def new(file: str, as_json: bool) -> None:
    """Write a new key into FILE, which must not exist.

    The file gets mode 0600: only its owner can read it.

    \b
    Examples:
      lockcache key new ~/.config/lockcache.key
      export LOCKCACHE_SIGNING_KEY_FILE=~/.config/lockcache.key
    """
    with naming(file):
        _write_new(file, _text([new_key()]))
    _tell(file, 1, as_json)


@command.command("rotate")
@_FILE
@click.option(
    "--keep", metavar="N", type=options.WholeNumber(0), help="Keep only this many of the older keys. [default: all]"
)
@options.as_json
def rotate(file: str, keep: int | None, as_json: bool) -> None:
    """Add a new key to FILE, which signs from now on.

    The older keys still verify what they signed. Programs read FILE when they open a cache. A program that has only
    the older keys misses entries that the new key signed, and compiles them again. If others may know a key, remove
    it with --keep: entries that it signed are then misses.

    \b
    Examples:
      lockcache key rotate ~/.config/lockcache.key
      lockcache key rotate --keep 1 ~/.config/lockcache.key
    """
    older = read_key_file(file)
    kept = older if keep is None else older[:keep]
    mode = os.stat(file).st_mode & 0o777
    with open_output(file) as staged:
        os.fchmod(staged.fileno(), mode)
        staged.write(_text([new_key(), *kept]))
    _tell(file, 1 + len(kept), as_json)


def _tell(file: str, keys: int, as_json: bool) -> None:
    if as_json:
        print_json({"path": os.path.abspath(file), "keys": keys})


def _text(keys: list[bytes]) -> bytes:
    made = time.strftime("%Y-%m-%d", time.gmtime())
    first = f"# lockcache signing keys, {made}: the first signs, all verify. Keep them secret."
    return "\n".join([first, *map(encode_key, keys), ""]).encode()


def _write_new(file: str, text: bytes) -> None:
    fd = os.open(file, _CREATE, 0o600)
    try:
        os.fchmod(fd, 0o600)
        write_all(fd, text)
        os.fsync(fd)
    except BaseException:
        os.unlink(file)  # half a file of keys would be in the way of the next try
        raise
    finally:
        os.close(fd)
