# SPDX-License-Identifier: Apache-2.0
"""``lockcache inspect``: all that can be said of one entry."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

import click

from lockcache.bundle import Onlooker
from lockcache.cli import options
from lockcache.cli.key_argument import complete_name, refuse_lone_directory, resolve_name
from lockcache.cli.open_directory import are_swapped, look
from lockcache.cli.output import elapsed, plain, print_json, print_table, size_in_words, span
from lockcache.filestream.disk import user_name
from lockcache.filestream.entry import digest_of
from lockcache.filestream.inspect import describe_bytes
from lockcache.lowlevel import Described, Layout, Read, describe_entry, find_entry, load_keys, read_entry

_NOT_RECORDED: Final = "not recorded"
_DIGEST_IN_WORDS: Final = {True: "verified", False: "does not verify: a read misses"}


@click.command("inspect")
@click.argument("key", shell_complete=complete_name)
@options.directory
@options.as_json
def command(key: str, directory: str | None, as_json: bool) -> None:
    """Show one entry: its record, whether it verifies, and what code it contains.

    KEY is the key as text, hex: and the key's bytes in hex, the start of the entry's hash, or the kernel's name, as
    'lockcache ls' prints them. Signatures are verified with the keys in $LOCKCACHE_SIGNING_KEY_FILE. Of a cubin it
    shows the architecture, the kernels and the resources of each; of PTX the version, target and entry functions. The
    owner of the file stored or unpacked the entry. Inspecting does not count as a use.

    \b
    Examples:
      lockcache inspect 3f2a9c41
      lockcache inspect my-kernel /scratch/kernels
      lockcache inspect hex:00ff10 --json | jq .code.kernels
    """
    if are_swapped(key, directory):
        raise click.UsageError(f"KEY comes first: lockcache inspect {directory} {key}")
    refuse_lone_directory(key, directory, f"lockcache inspect KEY {key}")
    layout = look(directory)
    found = _inspect(layout, resolve_name(layout, key))
    if as_json:
        print_json(found)
    else:
        _print(found)


def _inspect(layout: Layout, name: str) -> dict[str, Any]:
    look = _look_in_seed if find_entry(layout, name) is None else _look
    entry, contents, refusal, file = look(layout, name)
    body = entry._asdict()
    del body["inode"]
    body.update(
        file=file,
        last_use_ns=entry.last_use_ns or None,
        metadata=_jsonable(entry.metadata or {}),
        verified=contents and contents.is_verified,
        unverified=contents and (contents.why_unverified or None),
        digest=contents.digest.hex() if contents and contents.digest else None,
        # A record names no process, user or host, which would differ for equal programs; but every writer makes its own
        # file, also in a group's directory, so the file's owner tells.
        made_by=user_name(contents.owner_uid) if contents and contents.owner_uid >= 0 else None,
        code=None,
    )
    if contents is None:
        body["not_read"] = refusal
    else:
        from lockcache.cli.payload_contents import read_code

        body["code"] = read_code(contents.payload)
    return body


def _look(layout: Layout, name: str) -> tuple[Described, Read | None, str, str]:
    found = find_entry(layout, name)
    entry = None if found is None else describe_entry(layout, found, keep_metadata=True)
    if entry is None:
        raise click.ClickException(f"the entry {name} was removed just now")
    try:
        contents = read_entry(layout, name, load_keys(None))
    except PermissionError as error:
        is_use = error.errno == errno.EPERM  # the error of O_NOATIME for users other than the owner
        why = "it belongs to another user: reading it would count as a use" if is_use else str(error)
        return entry, None, why, layout.entry(name)
    return entry, contents, "it was removed just now", layout.entry(name)


def _look_in_seed(layout: Layout, name: str) -> tuple[Described, Read | None, str, str]:
    loaded = Onlooker(layout, load_keys(None), is_seeded=True).load(name)
    if loaded is None:
        raise click.ClickException(f"the entry {name} was removed just now, or the seed's cannot be verified")
    payload, blob = loaded
    return describe_bytes(name, payload, blob), Read(payload, True, digest_of(blob), -1), "", layout.seed


def _jsonable(value: Any) -> Any:
    """Returns metadata in the types of JSON: bytes as text, tuples as lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, Mapping):
        return {str(_jsonable(key)): _jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(inner) for inner in value]
    return value


def _print(found: dict[str, Any]) -> None:
    for name, text in _facts(found).items():
        click.echo(f"{plain(name):<12}  {plain(text)}")
    symbols = found["metadata"].get("symbol_mapping")
    if isinstance(symbols, dict) and symbols:
        print_table("symbols", ("name expression", "symbol"), symbols.items())
    code = found["code"] or {}
    if code.get("kernels"):
        print_table("kernels", _KERNEL_HEADS, _kernel_rows(code["kernels"], symbols))
    if code.get("entries"):
        print_table("entries", ("entry function",), [(entry,) for entry in code["entries"]])


# With units, for which a column of numbers has no room. Registers and stack are per thread, shared memory per block.
_KERNEL_HEADS: Final = ("kernel", "code (B)", "registers", "stack (B)", "shared (B)", "constant (B)")


def _kernel_rows(kernels: list[dict[str, Any]], symbols: object) -> list[tuple[object, ...]]:
    """Returns the rows of the table, in which a kernel has its name expression, if one is recorded."""
    expressions = {}
    if isinstance(symbols, dict):
        expressions = {symbol: expression for expression, symbol in symbols.items() if isinstance(symbol, str)}
    named = [{**kernel, "name": expressions.get(kernel["name"], kernel["name"])} for kernel in kernels]
    return [tuple("-" if cell is None else cell for cell in kernel.values()) for kernel in named]


def _facts(found: dict[str, Any]) -> dict[str, str]:
    code = found["code"] or {}
    facts = {
        "hash": found["name"],
        "kernel": found["label"] or _NOT_RECORDED,
        "file": found["file"],
        "size": size_in_words(found["size_bytes"]),
        "kind": found["kind"] or "unknown",
        "arch": found["arch"] or "unknown",
        "compiler": found["compiler"] or _NOT_RECORDED,
        "compiled": span(found["cost_ns"]) if found["cost_ns"] else _NOT_RECORDED,
        "stored": _when(found["created_ns"]) if found["created_ns"] else _NOT_RECORDED,
        "last use": _when(found["last_use_ns"]) if found["last_use_ns"] else _NOT_RECORDED,
        "record": found["record"],
        "digest": f"{found['digest'] or '-'} ({found['unverified'] or _DIGEST_IN_WORDS.get(found['verified'], '-')})",
        "made by": f"{found['made_by']}, who owns its file" if found["made_by"] else "unknown",
    }
    if "not_read" in found:
        facts["digest"] = f"not read: {found['not_read']}"
    for name in ("ptx_version", "target", "address_size", "error"):
        if code.get(name) is not None:
            facts[name.replace("_", " ")] = str(code[name])
    mine = {"kind", "arch", "compiler", "symbol_mapping"}
    return facts | {f"+ {name}": str(value) for name, value in found["metadata"].items() if name not in mine}


def _when(time_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ns / 1e9, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"  # damaged, or a clock beyond the year 9999
    return f"{moment} ({elapsed(time_ns)} ago)"
