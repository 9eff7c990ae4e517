# SPDX-License-Identifier: Apache-2.0
"""Verdicts on the counts of the trials in the guest: from a line of JSON to the lines of a table. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lockcache_stress.run import Check

_Numbers = Mapping[str, Any]

# The requests that each operation may take on NFS 4.2. Plain files take three for a cold hit; the further requests
# lock, publish and account for an entry, and belong to a computation's lease. On a slow guest one of some twenty calls
# comes after what the client remembers has become a second old, and asks once more: that is allowed for.
_MOST_CALLS: Final[Mapping[str, float]] = {
    "open": 8,
    "cold hit": 6.25,  # 5, and one to see an entry that another host has replaced
    # One opens the lock of a shard that this process has not written to yet.
    "put": 13.25,
    "put, its lock open": 12.25,
    "put with a cap": 14,  # one more reads cap and sum after the reservation
    "get_or_compute that computes": 27.5,
    "close": 8,
    "a waiter's second": 4,
}
# Requests for metadata with which a node opens a bundle, whatever the number of its ranks and kernels.
_MOST_OF_A_SEED: Final = 4
_PAGE_BYTES: Final = 4096
# The most shards with wrong accounting that a verdict names.
_MOST_SHOWN: Final = 3
#: The time after which a read sees an entry that another host stored.
_VISIBLE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Tried:
    """One trial: its numbers from the guest, and the verdict on them."""

    name: str
    seconds: float
    checks: list[Check]
    numbers: _Numbers = field(default_factory=dict)
    #: The reason why it has no numbers.
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Returns plain values."""
        checks = [vars(check) for check in self.checks]
        plain = {"trial": self.name, "ok": self.ok, "seconds": self.seconds, "checks": checks, "numbers": self.numbers}
        return {**plain, "error": self.error} if self.error else plain


def parse_result(line: str) -> Tried:
    """Returns the verdict on a line that the guest wrote. A trial that raised has failed."""
    said = json.loads(line)
    name, seconds = str(said["trial"]), float(said["seconds"])
    numbers, error = said.get("numbers", {}), str(said.get("error", ""))
    if error:
        last = error.strip().splitlines()[-1]
        return Tried(name, seconds, [Check(name, last, "it comes to its end", ok=False)], numbers, error)
    return Tried(name, seconds, TRIALS[name](numbers), numbers)


def _calls(numbers: _Numbers) -> list[Check]:
    each, lines = numbers["each"], []
    # NFS 3 has no open operation, and records are in files there, so its requests are shown and not judged.
    is_judged = any(kind.startswith("OPEN") for kind in numbers["kinds"]["cold hit"])
    for name, most in _MOST_CALLS.items():
        must = f"<= {most:g}" if is_judged else ""
        lines.append(Check(f"requests: {name}", f"{each[name]:g}", must, not is_judged or each[name] <= most))
    return [*lines, Check("requests: hit again", f"{each['hit again']:g}")]


def _fleet(numbers: _Numbers) -> list[Check]:
    lines = []
    for start, found in numbers.items():
        if not isinstance(found, dict):
            continue
        asked, ranks = found["requests"], found["nodes"] * found["ranks_per_node"]
        # No number of requests is promised: `lockcache-stress fleet` is checked against them. An entry that was
        # dropped, for want of a lock in a slow guest, is computed again.
        value, must, ok = _computes(found, found["kernels"] if "first" in start else 0)
        name = f"{start}: {ranks} ranks on {found['nodes']}, {found['kernels']} kernels"
        lines.append(Check(name, f"{value}, {sum(asked.values()):,} requests", must, ok))
    return lines


def _computes(found: _Numbers, wanted: int) -> tuple[str, str, bool]:
    """Returns the computations, their right number, and whether both agree: one a key, and one for each dropped put."""
    value = f"{found['computes']} computes, {found['wrong']} wrong, {found['dropped']} puts dropped"
    ok = wanted <= found["computes"] <= wanted + found["dropped"] and not found["wrong"]
    return value, f"{wanted} computes and those dropped, 0 wrong", ok


def _seed(numbers: _Numbers) -> list[Check]:
    hits, wanted, others, reads = (numbers[name] for name in ("hits", "wanted_hits", "other_requests", "reads"))
    # The reads of a client that asks for a page at a time, for each byte once.
    most = -(-numbers["bundle_bytes"] // _PAGE_BYTES)
    return [
        Check("hits of all ranks", f"{hits:,}", f"{wanted:,}", hits == wanted),
        Check("requests of the node, reads apart", str(others), f"<= {_MOST_OF_A_SEED}", others <= _MOST_OF_A_SEED),
        Check("reads of the node", str(reads), f"1 to {most}", 1 <= reads <= most),
    ]


def _visible(numbers: _Numbers) -> list[Check]:
    lines = []
    for kind, found in numbers.items():
        late = max((each["late_seconds"] or 0.0) for each in found)
        unverified = max(each["unverified"] for each in found)
        # A read that began within the promised time may miss, however long the read took.
        value = f"the last read that missed began {late:.2f} s after the put" if late else "no read missed"
        must = f"<= {_VISIBLE_SECONDS:g} s, 0 unverified"
        ok = late <= _VISIBLE_SECONDS and not unverified
        lines.append(Check(f"another host's put, {kind}", f"{value}, {unverified} unverified hits", must, ok))
    return lines


def _opened(numbers: _Numbers) -> list[Check]:
    pages, entries, wanted = numbers["at once"], numbers["entries"], numbers["wanted_entries"]
    repaired = numbers["repaired_shards"]
    return [
        Check("pages of all openings", f"{pages}, {numbers['in turn']} of them in turn", "1", pages == 1),
        Check("entries accounted for", f"{entries}", f"{wanted}", entries == wanted),
        Check("shards set right by a recount", f"{len(repaired)}", "0", not repaired),
    ]


def _copied(numbers: _Numbers) -> list[Check]:
    before, after, entries = numbers["before"], numbers["after"], numbers["entries"]
    return [
        Check("lock files of a copy that are its original's", f"{after} of {before}", "0", before > 0 == after),
        Check("entries of the copy", f"{entries}", "1", entries == 1),
    ]


def _replaced(numbers: _Numbers) -> list[Check]:
    return [
        Check(
            f"{'' if who.startswith('removed') else 'replaced while '}{who} has the old file open",
            f"{found['old']} of {found['reads']} reads old, until {found['until_seconds']:g} s",
            "0 old",
            found["old"] == 0,
        )
        for who, found in numbers.items()
    ]


def _herd(numbers: _Numbers) -> list[Check]:
    keys = numbers["keys"]
    lines = []
    for order in (each for each in numbers if each not in ("keys", "processes")):
        found = numbers[order]
        value, must, ok = _computes(found, keys)
        lines.append(Check(f"{numbers['processes']} processes, {order}", value, must, ok))
    return lines


def _kill(numbers: _Numbers) -> list[Check]:
    taken, staged = numbers["takeover"], numbers["staged"]
    how = f"{'taken over' if taken['taken_over'] else 'not taken over'} after {taken['seconds']:g} s"
    reaped = f"{staged['left']} left, {staged['young']} of them after a reap, {staged['after_a_minute']} a minute later"
    is_reaped = staged["left"] > 0 and staged["young"] == staged["left"] and not staged["after_a_minute"]
    return [
        Check("a holder that is killed on the other host", how, "taken over", taken["waited"] and taken["taken_over"]),
        Check("staged files of a writer that was killed", reaped, "> 0, then all, then 0", is_reaped),
    ]


def _bytes(numbers: _Numbers) -> list[Check]:
    return [line for kind, found in numbers.items() for line in _traffic(found, f"{kind}: ")]


def _cap(numbers: _Numbers) -> list[Check]:
    lines = []
    for run, found in numbers.items():
        peak, most = found["peak_bytes"], found["cap_bytes"]
        share = f"{peak:,} bytes, {peak / most - 1:+.1%}, {found['puts']} puts, {found['samples']} samples"
        lines.append(Check(f"{run}: peak on the server's disk", share, f"<= {most:,}", 0 < peak <= most))
        stored = found["least_stored_bytes"]
        lines.append(Check(f"{run}: stored in all", f"> {stored:,} bytes", f"> {most:,}", stored > most))
        lines += _traffic(found, f"{run}: ")
    return lines


def _cut(numbers: _Numbers) -> list[Check]:
    seconds = f"cut off for {numbers['cut_seconds']:g} s"
    lines = [Check("time without network", seconds)]
    for who, found in numbers.items():
        if not isinstance(found, dict):
            continue
        if "raised" in found:
            lines.append(Check(who, f"raised {found['raised']}", "nothing raised", ok=False))
        elif found["what"] == "compute":
            lines.append(Check(who, "has its code" if found["has_code"] else "another", "its code", found["has_code"]))
        else:
            lines.append(Check(who, f"{found['what']}: {found['gave']:,}", "nothing raised"))
    return lines


def _restart(numbers: _Numbers) -> list[Check]:
    return _traffic(numbers["traffic"], "")


def _traffic(found: _Numbers, prefix: str) -> list[Check]:
    """Returns the checks of all traffic: no wrong value was read, no process died, the accounting equals the disk."""
    wrong = {each: found[each] for each in ("torn", "foreign", "stale", "illegal_histories")}
    read = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in wrong.items())
    counted = f"{found['hits']:,} hits, {found['recorded']:,} operations recorded: {read}"
    is_read = found["hits"] > 0 and not any(wrong.values())
    drift = found["accounted_bytes"] - found["disk_bytes"]
    repaired = found["repaired_shards"]
    accounted = f"{drift:+,} of {found['disk_bytes']:,} bytes, {len(repaired)} shards set right by a recount"
    accounted += f" ({'; '.join(repaired[:_MOST_SHOWN])})" if repaired else ""
    if found.get("page_is_lost", False):  # counted again, with what stops half way meanwhile
        must, is_right = ">= +0", drift >= 0
    else:
        must, is_right = "+0, 0 shards", drift == 0 and not repaired
    deaths = "; ".join(found["deaths"]) or f"none, {found['dropped']:,} of {found['puts']:,} puts dropped"
    return [
        Check(f"{prefix}reads", counted, "> 0 hits, nothing wrong", is_read),
        Check(f"{prefix}workers that died", deaths, "none", not found["deaths"]),
        Check(f"{prefix}accounting", accounted, must, is_right),
    ]


def _neighbour(numbers: _Numbers) -> list[Check]:
    if "skipped" in numbers:
        return [Check("cuda.core in the same directory", f"skipped: {numbers['skipped']}")]
    found = numbers["traded"]
    disk, most, put = found["disk_bytes"], found["cap_bytes"], found["put_bytes"]
    return [
        Check("reads", f"{found['hits']:,} hits, {found['wrong']} not whole", "0", not found["wrong"]),
        Check("written in all", f"{put:,} bytes", f"> {2 * most:,}", put > 2 * most),
        Check("on the disk in the end", f"{disk:,} bytes", f"<= {most:,}", disk <= most),
        Check("the daemon", "lives" if found["daemon_lives"] else "died", "lives", found["daemon_lives"]),
    ]


#: The judge of each trial, in the order in which all are run.
TRIALS: Final[Mapping[str, Callable[[_Numbers], list[Check]]]] = {
    "calls": _calls,
    "fleet": _fleet,
    "seed": _seed,
    "opened": _opened,
    "copied": _copied,
    "visible": _visible,
    "replaced": _replaced,
    "herd": _herd,
    "kill": _kill,
    "bytes": _bytes,
    "cap": _cap,
    "cut": _cut,
    "restart": _restart,
    "neighbour": _neighbour,
}


# The trials that count requests, which the kernel's NFS client alone does; and that of a copy, which is not known as a
# copy where the inodes of folders do not last.
_OF_NFS: Final = ("calls", "fleet", "seed", "copied")


def trials_of(file_system: str) -> tuple[str, ...]:
    """Returns the names of the trials for a file system."""
    return tuple(name for name in TRIALS if name not in _OF_NFS or file_system == "nfs")
