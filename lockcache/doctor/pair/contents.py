# SPDX-License-Identifier: Apache-2.0
"""Contents: what the other host reads of files while they are replaced, and of their attributes."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, Finding
from lockcache.doctor.pair.messages import Numbers
from lockcache.doctor.pair.trial import Side, Trial
from lockcache.filestream.disk import BY_PATH
from lockcache.filestream.entry import HEAD_BYTES, XATTR

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC

# ---- reads while the file is replaced --------------------------------------------------------------------------------

# More than one call of a server reads.
_CONTENT_BYTES: Final = 32 * 1024
_LOOP_SHARE: Final = 0.4


def _content(number: int) -> bytes:
    return number.to_bytes(8, "little") * (_CONTENT_BYTES // 8)


def _replace_on(side: Side) -> Numbers:
    side.put("file", _content(0))
    side.sync()
    end, replaced = time.monotonic() + side.limit_seconds * _LOOP_SHARE, 0
    while time.monotonic() < end:
        replaced += 1
        side.put("file", _content(replaced))
    return {"replaced": replaced}


def _read_on(side: Side) -> Numbers:
    side.sync()
    end = time.monotonic() + side.limit_seconds * _LOOP_SHARE
    seen = {"reads": 0, "torn": 0, "missing": 0, "errors": 0}
    versions = set()
    while time.monotonic() < end:
        seen["reads"] += 1
        try:
            content = _read(side.at("file"))
        except FileNotFoundError:
            seen["missing"] += 1
        except OSError:
            seen["errors"] += 1
        else:
            versions.add(content[:8])
            seen["torn"] += content != content[:8] * (_CONTENT_BYTES // 8)
    return {**seen, "versions": len(versions)}


def _read(path: str) -> bytes:
    with BY_PATH.open(path, _OPEN) as fd, open(fd, "rb", closefd=False) as file:
        return file.read(_CONTENT_BYTES + 1)


def _judge_replacing(seen: list[Numbers]) -> Finding:
    names = ("reads", "replaced", "versions", "torn", "missing", "errors")
    total = {name: sum(numbers.get(name, 0) for numbers in seen) for name in names}
    found = (
        f"{total['replaced']} renames under {total['reads']} reads of the other host, which saw {total['versions']} "
        f"contents: {total['torn']} torn or mixed, {total['missing']} times missing, {total['errors']} errors"
    )
    if total["torn"] or total["missing"]:
        means = "reads next to writes are misses, and programs compile again; nothing torn is served"
        advice = "use a file system with POSIX rename: NFS, Lustre, CephFS; a node-local directory otherwise"
        return Finding("rename", DEGRADED, found, means, advice, total)
    if total["errors"]:
        return Finding("rename", NOTE, found, "such a read is tried again, and then a miss", measured=total)
    return Finding("rename", GOOD, found, measured=total)


# ---- attributes ------------------------------------------------------------------------------------------------------

_VALUE: Final = bytes(range(HEAD_BYTES))


def _set_attribute(side: Side) -> Numbers:
    side.put("file", b"x")
    is_set = False
    with BY_PATH.open(side.at("file"), os.O_RDWR | os.O_CLOEXEC) as fd, contextlib.suppress(OSError):
        os.setxattr(fd, XATTR, _VALUE)
        is_set = os.getxattr(fd, XATTR) == _VALUE
    side.sync()
    return {"set": is_set}


def _get_attribute(side: Side) -> Numbers:
    side.sync()
    with BY_PATH.open(side.at("file"), _OPEN) as fd, contextlib.suppress(OSError):
        return {"read": os.getxattr(fd, XATTR) == _VALUE}
    return {"read": False}


def _judge_attributes(seen: list[Numbers]) -> Finding:
    are_set = [bool(numbers.get("set")) for numbers in seen]
    lost = sum(bool(numbers.get("set")) and not numbers.get("read") for numbers in seen)
    measured = {"set": sum(are_set), "read": sum(bool(numbers.get("read")) for numbers in seen)}
    if lost:
        found = "what one host attaches to a file, the other does not read"
        means = "what that host stores is a miss on the other: each host compiles for itself"
        advice = "mount it with user attributes on both, or on neither"
        return Finding("attributes", DEGRADED, found, means, advice, measured)
    if not any(are_set):
        means = "records are files of their own, on both"
        return Finding("attributes", NOTE, "neither host has user attributes", means, measured=measured)
    if not all(are_set):
        means = "one host writes records as files of their own; both read both"
        return Finding("attributes", NOTE, "only one host can set user attributes", means, measured=measured)
    return Finding("attributes", GOOD, "each host reads what the other attached to a file", measured=measured)


ATTRIBUTES: Final = Trial(_set_attribute, _get_attribute, _judge_attributes)
REPLACING: Final = Trial(_replace_on, _read_on, _judge_replacing)
