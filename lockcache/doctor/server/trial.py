# SPDX-License-Identifier: Apache-2.0
"""Trials of a server of entries: whether it answers, how soon, what it stores, and whether it keeps leases.

Keeps invariant 7 (never take the job down) for the doctor itself: each call ends in time, and whatever the server does
is a finding. What is stored is of names that nobody else has, and is removed.
"""

from __future__ import annotations

import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNUSABLE, Finding, Report
from lockcache.filestream.disk import entry_name
from lockcache.filestream.entry import Record, load_keys
from lockcache.remote import (
    Answer,
    LeaseAnswer,
    RemoteError,
    RemoteUrl,
    Transport,
    call_within,
    open_transport,
    parse_url,
    refuse_settings,
    require_client,
    seal,
    unseal,
)

_T = TypeVar("_T")

_CALL_SECONDS: Final = 5.0
_PROBES: Final = 5
# Seconds from which a process takes an answer for slow; it waits no longer than a second in all.
_SLOW_SECONDS: Final = 0.1
_VALUE_BYTES: Final = 16_384
_LEASE_SECONDS: Final = 3.0

#: By the kind of an answer to the shortest call: its consequence for programs, and what to change.
_WITHOUT: Final = "programs go on without it"
_CAUSES: Final = {
    Answer.ABSENT: ("every lookup misses", "check its path"),
    Answer.REFUSED: ("every lookup misses, and each host compiles", "see its words, and its log"),
    Answer.MISUSED: (_WITHOUT, "check what it names: user, password, region, bucket, database, or this host's clock"),
    Answer.BROKEN: (_WITHOUT, "check host, port, password and certificates"),
    Answer.SILENT: (
        "each process waits for one second at most, then goes on without it",
        "check host, port and firewall",
    ),
}


def examine_remote(url: str) -> Report:
    """Try the server at ``url``. Raises :class:`ValueError` for what is not the URL of one, or has wrong settings."""
    server = parse_url(url)
    return Report(server.shown, list(_findings(server)))


def _findings(server: RemoteUrl) -> Iterator[Finding]:
    try:
        require_client(server)
    except ModuleNotFoundError as error:
        yield Finding("client", UNUSABLE, str(error), "programs continue without the server")
        return
    refuse_settings(server)
    transport = open_transport(server, _CALL_SECONDS)
    yield (answers := _answers(transport))
    if answers.verdict == UNUSABLE:
        return
    if not server.may_send:
        yield Finding("stores", NOTE, "not tried: read_only=1 asks for reads alone", "each host compiles what it lacks")
    else:
        stored = _stores(server, transport)
        yield _hides(transport, stored) or stored
        yield _leases(server, transport)
    yield _signs()


def _answers(transport: Transport) -> Finding:
    seconds: list[float] = []
    try:
        seconds.extend(_timed(transport.probe)[1] for _ in range(_PROBES))
    except RemoteError as error:
        what, advice = _CAUSES[error.answer]
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            advice = "name the file of its certificate authority: URL?ssl_ca_certs=/path/to/ca.pem"
        return Finding("answers", UNUSABLE, str(error), what, advice)
    median = statistics.median(seconds[1:])
    found = f"{median * 1e3:.1f} ms (the first, which connects, {seconds[0] * 1e3:.1f} ms)"
    measured = {"median_seconds": median, "first_seconds": seconds[0]}
    if median > _SLOW_SECONDS:
        means = "each process asks it a few times, and goes on without it once it has waited for a second"
        return Finding("answers", DEGRADED, found, means, "use a server that is nearer", measured)
    return Finding("answers", GOOD, found, measured=measured)


def _stores(server: RemoteUrl, transport: Transport) -> Finding:
    name = entry_name(b"lockcache doctor " + secrets.token_bytes(16))
    was_stored = False
    try:
        for payload in (secrets.token_bytes(_VALUE_BYTES), secrets.token_bytes(_VALUE_BYTES)):
            value = seal(name, payload, Record(len(payload), time.time_ns(), 0, b""), None)
            was_stored = False
            _timed(partial(transport.put, name, value))
            was_stored = True
            read, _ = _timed(partial(transport.get, name))
            if read is None or unseal(name, read, None)[0] != payload:
                raise ValueError("it is another entry, or none")
    except RemoteError as error:
        return _not_stored(server, error, was_stored=was_stored)
    except ValueError as error:
        return Finding("stores", UNUSABLE, f"what was stored is not what was read: {error}", "every lookup misses")
    finally:
        failure = _removal_failure(transport, name)
    if failure:
        return Finding("stores", DEGRADED, failure, "what a program removes is read by other hosts still")
    return Finding("stores", GOOD, "an entry was stored, read, replaced, read and removed")


def _not_stored(server: RemoteUrl, error: RemoteError, *, was_stored: bool) -> Finding:
    """Returns the finding of a put that failed, or of the read after it."""
    if was_stored:
        return Finding("stores", UNUSABLE, str(error), "what was stored cannot be read: every lookup misses")
    advice = "give it room and a policy to evict, or the right to write; to read alone: URL?read_only=1"
    if server.scheme.startswith("http"):
        advice = "bazel-remote: --disable_http_ac_validation; nginx: dav_methods PUT DELETE"
    if error.answer is Answer.REFUSED:
        # It lives: programs read what is there.
        return Finding("stores", DEGRADED, str(error), "what it has is read, and nothing new is stored there", advice)
    return Finding("stores", UNUSABLE, str(error), "nothing is stored there", advice)


def _removal_failure(transport: Transport, name: str) -> str:
    """Remove an entry. Returns why it is still there; empty if it is not."""
    try:
        _timed(partial(transport.remove, name))
        return "what was removed is still there" if _timed(partial(transport.get, name))[0] is not None else ""
    except RemoteError as error:
        return f"nothing can be removed: {error}"


def _hides(transport: Transport, stored: Finding) -> Finding | None:
    """Returns the finding of a store that denies reads of what it does not have; ``None`` for another."""
    if not transport.denies_missing or stored.verdict == UNUSABLE:
        return None
    found = f"{stored.found}; it answers 403 for an entry that is missing"
    advice = "grant s3:ListBucket, or a right that is lacking looks like a miss"
    return Finding("stores", NOTE if stored.verdict == GOOD else stored.verdict, found, stored.means, advice)


def _leases(server: RemoteUrl, transport: Transport) -> Finding:
    name, one, other = (secrets.token_hex(32) for _ in range(3))
    means = "each host compiles a new program once, instead of one for all"
    try:
        if not server.may_lease:
            return Finding("leases", NOTE, f"{server.scheme}:// has none", means)
        if not _timed(lambda: transport.has_leases)[0]:
            return Finding("leases", DEGRADED, "it has none", means, "Valkey, or an object store with conditional puts")
        taken = [_timed(partial(transport.try_lease, name, token, _LEASE_SECONDS))[0] for token in (one, other)]
        renewed, _ = _timed(lambda: transport.renew(name, one, _LEASE_SECONDS))
        _timed(lambda: transport.release(name, one))
        again, _ = _timed(lambda: transport.try_lease(name, other, _LEASE_SECONDS))
        _timed(lambda: transport.release(name, other))
    except RemoteError as error:
        return Finding("leases", DEGRADED, str(error), means, "allow SET, EVAL and PEXPIRE, or conditional puts")
    if [*taken, renewed, again] != [LeaseAnswer.TAKEN, LeaseAnswer.HELD, True, LeaseAnswer.TAKEN]:
        return Finding("leases", DEGRADED, "a lease does not exclude others", means)
    return Finding("leases", GOOD, "one was taken, refused to others, renewed and given back")


def _signs() -> Finding:
    try:
        keys = load_keys(None)
    except (OSError, ValueError) as error:
        return Finding("signatures", UNUSABLE, str(error), "programs fail when they open a cache")
    if keys is None:
        advice = "lockcache key new FILE, and LOCKCACHE_SIGNING_KEY_FILE, where not every writer is trusted"
        return Finding(
            "signatures",
            NOTE,
            "entries are not signed",
            "anyone who may write to it may store any program",
            advice,
        )
    return Finding("signatures", GOOD, f"entries are signed, by {os.environ['LOCKCACHE_SIGNING_KEY_FILE']}")


def _timed(ask: Callable[[], _T]) -> tuple[_T, float]:
    return call_within(_CALL_SECONDS, ask)
