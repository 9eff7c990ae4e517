# SPDX-License-Identifier: Apache-2.0
"""The state of a cache directory: safe or not, its format, its policy, its accounting.

Only inspects: takes no shard's lock, makes no file, repairs nothing; the advice names the command that repairs.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from dataclasses import asdict
from typing import Final

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNUSABLE, Finding, Subject
from lockcache.doctor.probe_dir import PREFIX
from lockcache.errors import LockcacheError
from lockcache.filestream.accounting import head_of
from lockcache.filestream.disk import (
    FORMAT_VERSION,
    Owner,
    Space,
    denial,
    is_alive,
    nearest_seen,
    parse_staged_name,
    probe_space,
)
from lockcache.lowlevel import (
    SHARDS,
    Layout,
    StatedPolicy,
    accounted,
    check_directory,
    count_shard,
    find_drift,
    keeper_of,
)
from lockcache.sizes import counted, format_size

_KINDS: Final = {
    "cache": "a cache",
    "empty": "empty: a cache can be made here",
    "other": "holds other things and no cache; none was made",
    "missing": "not there yet; what is above it was examined",
}


def directory(subject: Subject) -> list[Finding]:
    """Report what kind of directory this is."""
    verdict = GOOD if subject.kind in ("cache", "empty") else NOTE
    advice = "name a directory that only a cache uses" if subject.kind == "other" else ""
    return [Finding("directory", verdict, _KINDS[subject.kind], advice=advice, measured={"kind": subject.kind})]


def denied(root: str, error: OSError) -> tuple[str, str]:
    """Returns why a directory cannot even be looked at, and what to do."""
    if error.errno != errno.EACCES:
        return str(error), "name a directory that you may use"
    advice = (
        "use a directory of your own; or have its owner share it with a group (group = ...), or "
        f"let others read it: chmod -R a+rX {shlex.quote(nearest_seen(root))}"
    )
    return denial(root), advice


def safety(subject: Subject) -> list[Finding]:
    """Check whether opening it as a cache would be refused: its owner, who may write to it, its format."""
    if subject.kind == "missing":
        return []
    try:
        check_directory(Layout(subject.root))
    except (LockcacheError, OSError) as error:
        # A fix for a cache would ruin a directory that others use too: /tmp, say.
        found, _, fix = str(error).partition(". ")
        advice = fix if subject.kind != "other" else "use a directory of your own below it"
        means = "programs refuse to open it"
        return [Finding("safety", UNUSABLE, found, means, advice)]
    status = os.stat(subject.root)
    found = f"owned by uid {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}; format {FORMAT_VERSION} or older"
    return [Finding("safety", GOOD, found)]


def policy(subject: Subject) -> list[Finding]:
    """Check whether the policy can be understood, and report what it says."""
    if subject.kind != "cache":
        return []
    layout = Layout(subject.root)
    advice = f"lockcache policy set --max-size SIZE {shlex.quote(subject.root)}"
    try:
        now = StatedPolicy(layout).load()
        is_damaged = os.path.lexists(layout.state) and head_of(layout) is None
    except (LockcacheError, OSError) as error:
        return [Finding("policy", UNUSABLE, str(error), "programs refuse to open it", advice)]
    if is_damaged:
        means = "what the directory holds is counted again when it is opened, and its cap is lost"
        return [Finding("policy", DEGRADED, f"{layout.state} is damaged", means, advice)]
    cap = "no cap" if now.max_size_bytes is None else f"cap {format_size(now.max_size_bytes)}"
    by = ", set by an operator" if now.by_operator else ", the default" if now.is_default else ""
    return [Finding("policy", GOOD, cap + by, measured=asdict(now))]


def daemon(subject: Subject) -> list[Finding]:
    """Check whether a daemon manages the directory."""
    if subject.kind != "cache":
        return []
    keeper = keeper_of(Layout(subject.root))
    if keeper is not None:
        return [Finding("daemon", GOOD, f"managed by lockcache-daemon, {keeper}", measured={"runs": True})]
    means = "lockcache programs enforce the cap themselves; only cuda.core's own cache needs a daemon for it"
    return [Finding("daemon", NOTE, "none running", means, measured={"runs": False})]


def accounting(subject: Subject) -> list[Finding]:
    """Compare what is accounted for with what the disk holds, and report the size of its blocks."""
    layout = Layout(subject.root)
    if subject.kind != "cache" or not os.path.lexists(layout.state):
        return []
    return [*_drift(subject, layout), *_blocks(layout)]


def _blocks(layout: Layout) -> list[Finding]:
    """Returns a finding if the directory counts in other blocks than its file system has: mostly it was copied."""
    head, real = head_of(layout), probe_space(layout.root)
    if head is None or head.space == real:
        return []
    stated = head.space
    found = f"{layout.state} states {_numbers(stated)}; this file system has {_numbers(real)}"
    means = "all count as the directory states, so the cap holds in other blocks than the disk's"
    advice = f"stop the processes that use it, then rm {shlex.quote(layout.state)}: it is counted again, without a cap"
    return [Finding("blocks", NOTE, found, means, advice, {"stated": stated._asdict(), "real": real._asdict()})]


def _numbers(space: Space) -> str:
    more = f" and {space.inode_bytes} for each file" if space.inode_bytes else ""
    folders = "" if space.shows_blocks else ", folders not counted"
    return f"blocks of {space.block_bytes} bytes{more}{folders}"


def _drift(subject: Subject, layout: Layout) -> list[Finding]:
    if accounted(layout) is None:
        found, means = "the page cannot be read, or is damaged", "the cap holds only once it can be read again"
        return [Finding("accounting", DEGRADED, found, means, f"lockcache recount {shlex.quote(subject.root)}")]
    drift = find_drift(layout)
    entries = sum(count_shard(layout, shard) for shard in range(SHARDS))
    measured = {"drift_bytes": drift.bytes, "drift_shards": drift.shards, "entries": entries}
    busy = f"; written all the while: {counted(drift.busy_shards, 'shard')}" if drift.busy_shards else ""
    held = f"{counted(entries, 'entry')}{busy}"
    if not drift.shards:
        return [Finding("accounting", GOOD, f"correct ({held})", measured=measured)]
    where = f"in {drift.shards} of {SHARDS} shards, of {held}"
    if drift.bytes:
        found = f"is {abs(drift.bytes)} bytes too {'high' if drift.bytes > 0 else 'low'}, {where}"
        means = "entries are evicted too early" if drift.bytes > 0 else "the cap is exceeded by as much"
    else:
        found = f"is wrong {where}, by as much too low as too high"
        means = "the cap holds only until one of these shards is recounted"
    advice = f"lockcache recount {shlex.quote(subject.root)}; a daemon does it by itself"
    return [Finding("accounting", DEGRADED, found, means, advice, measured)]


def leftovers(subject: Subject) -> list[Finding]:
    """Report the staged files of killed writers, and what a killed examination left."""
    if subject.kind != "cache":
        return []
    layout = Layout(subject.root)
    staged_bytes, dead = 0, 0
    for file in _listdir(layout.tmp):
        staged = parse_staged_name(file)
        if staged is not None and is_alive(Owner(staged.host, staged.pid, staged.start_ticks)) is False:
            dead += 1
            staged_bytes += staged.size_bytes
    ours = [file for file in _listdir(layout.own) if file.startswith(PREFIX)]
    ours = [file for file in ours if os.path.join(layout.own, file) != subject.probe]
    measured = {"staged_files": dead, "staged_bytes": staged_bytes, "examinations": len(ours)}
    if not dead and not ours:
        return [Finding("leftovers", GOOD, "none", measured=measured)]
    room = format_size(staged_bytes)
    files = counted(dead, "staged file of a killed writer", "staged files of killed writers")
    folders = counted(len(ours), "directory of a killed examination", "directories of killed examinations")
    found = f"{files} ({room}), {folders}"
    means = "they use disk space until a daemon, or a writer that needs the space, removes them"
    advice = f"lockcache recount {shlex.quote(subject.root)}" if dead else ""
    if ours:
        paths = " ".join(shlex.quote(os.path.join(layout.own, file)) for file in ours)
        advice = f"{advice}; rm -r {paths}".removeprefix("; ")
    return [Finding("leftovers", DEGRADED if dead else NOTE, found, means, advice, measured)]


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
