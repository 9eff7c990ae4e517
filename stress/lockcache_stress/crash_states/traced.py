# SPDX-License-Identifier: Apache-2.0
"""The system calls of one operation that change the disk, as a forked child makes them: logged, with their bytes."""

from __future__ import annotations

import base64
import json
import os
import posix
import traceback
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lockcache_stress.experiments import files_of, replace_calls

_CHANGES: Final = ("fsync", "ftruncate", "mkdir", "open", "pwrite", "rename", "rmdir", "setxattr", "unlink", "write")
_exit: Final = posix._exit


class Change(NamedTuple):
    """One call that changes names or bytes, or that makes changes durable."""

    call: str
    #: Below the root of the cache.
    paths: tuple[str, ...]
    content: bytes = b""
    #: The offset of bytes, or the new length.
    offset: int = -1
    #: The name of an attribute.
    attribute: str = ""


def trace(root: str, act: Callable[[], object]) -> list[Change]:
    """Run ``act`` in a child. Returns its changes below ``root``. Raises RuntimeError where it fails."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        _act_and_exit(root, act, sender)
    os.close(sender)
    with open(receiver, "rb") as file:
        said = file.read().decode()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError(f"the operation failed: {said}")
    return [
        Change(call, tuple(paths), base64.b64decode(content), offset, attribute)
        for call, paths, content, offset, attribute in json.loads(said)
    ]


def _act_and_exit(root: str, act: Callable[[], object], sender: int) -> None:
    write, code, found = os.write, 1, list[Any]()
    readlink = os.readlink

    def logging(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def logged(*args: Any, **kwargs: Any) -> Any:
            paths = [each.removeprefix(f"{root}/") for each in files_of(name, args, kwargs, readlink)]
            done = call(*args, **kwargs)  # one that fails changes nothing
            content, offset, attribute = _arguments(name, args)
            if name != "open" or args[1] & os.O_CREAT:
                found.append([name, paths, base64.b64encode(content).decode(), offset, attribute])
            return done

        return logged

    try:
        replace_calls(logging, _CHANGES)
        act()
        _write_whole(write, sender, json.dumps(found).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - it is the parent's
        write(sender, traceback.format_exc().encode())
    finally:
        _exit(code)


def _write_whole(write: Callable[[int, bytes], int], fd: int, content: bytes) -> None:
    while content:
        content = content[write(fd, content) :]


def _arguments(name: str, args: tuple[Any, ...]) -> tuple[bytes, int, str]:
    if name == "write":
        return bytes(args[1]), -1, ""
    if name == "pwrite":
        return bytes(args[1]), args[2], ""
    if name == "setxattr":
        attribute = args[1].decode() if isinstance(args[1], bytes) else args[1]
        return bytes(args[2]), -1, attribute
    if name == "ftruncate":
        return b"", args[1], ""
    return b"", -1, ""
