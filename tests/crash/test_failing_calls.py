# SPDX-License-Identifier: Apache-2.0
"""Every call of an operation fails, one after the other: the caller has its code, and nothing is left behind."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.eviction import evict_to_limit
from lockcache_stress.trouble import has_failed, mount_failing_disk, set_failures, why_no_fuse
from tests.crash.failing_calls import KINDS, FailingCalls, failing_calls
from tests.crash.interrupted import assert_nothing_is_held, assert_nothing_is_left
from tests.matrix_sampling import all_but

__all__ = ["failing_calls"]

KEY = b"the key"
OLD = Entry(b"old" * 500, {"name": "old"})
NEW = Entry(b"newer" * 700, {"name": "new", "log": "x" * 3000})
ERRORS = (errno.ESTALE, errno.EIO, errno.ENOTCONN)
CAP = 20_000
# Of a put over the cap, which looks into 256 shards, no more calls of a kind are tried than so many.
MOST_EACH = 60

Action = Callable[[], object]
Prepare = Callable[[FileStreamProgramCache], Action]


def _absent(cache: FileStreamProgramCache) -> None:
    cache._parts.writer.remove(entry_name(KEY))


def _hit(cache: FileStreamProgramCache) -> Action:
    cache.put_entry(KEY, OLD)

    def act() -> None:
        assert cache.get(KEY) in (OLD.code, None)
        found = cache.get_entry(KEY)
        assert found is None or found.code == OLD.code

    return act


def _miss(cache: FileStreamProgramCache) -> Action:
    _absent(cache)

    def act() -> None:
        assert cache.get(KEY) is None
        assert cache.get_entry(KEY) is None

    return act


def _stores(cache: FileStreamProgramCache) -> Action:
    """Stores, and is stored or dropped and counted."""

    def act() -> None:
        before = cache._counts["dropped_writes"] + cache._counts["puts"]
        cache.put_entry(KEY, NEW)
        assert cache._counts["dropped_writes"] + cache._counts["puts"] == before + 1

    return act


def _put(cache: FileStreamProgramCache) -> Action:
    _absent(cache)
    return _stores(cache)


def _put_again(cache: FileStreamProgramCache) -> Action:
    cache.put_entry(KEY, OLD)
    return _stores(cache)


def _compute(cache: FileStreamProgramCache) -> Action:
    _absent(cache)

    def act() -> None:
        assert cache.get_or_compute(KEY, lambda: b"computed") == b"computed"

    return act


def _do_not_compute(cache: FileStreamProgramCache) -> Action:
    cache.put_entry(KEY, OLD)

    def act() -> None:
        assert cache.get_or_compute(KEY, lambda: b"computed") in (OLD.code, b"computed")

    return act


def _look_up_and_store(cache: FileStreamProgramCache) -> Action:
    _absent(cache)

    def act() -> None:
        assert cache.get(KEY) is None
        cache[KEY] = NEW.code

    return act


def _look_up_and_close(cache: FileStreamProgramCache) -> Action:
    _absent(cache)

    def act() -> None:
        assert cache.get(KEY) is None
        cache.close()

    return act


def _delete(cache: FileStreamProgramCache) -> Action:
    cache.put_entry(KEY, OLD)

    def act() -> None:
        try:
            del cache[KEY]
        except OSError:
            return  # the deleter learns that it may still be there
        assert cache.get(KEY) is None

    return act


def _evict(cache: FileStreamProgramCache) -> Action:
    def act() -> None:
        with suppress(OSError):  # it is for programs that keep a directory; a put that needs room is tried above
            evict_to_limit(cache._directory, 5000)

    return act


def _stats(cache: FileStreamProgramCache) -> Action:
    cache.put_entry(KEY, OLD)
    cache.get(KEY)
    return cache.stats


def _close(cache: FileStreamProgramCache) -> Action:
    cache.put_entry(KEY, OLD)
    cache.get(KEY)
    return cache.close


FILES: dict[str, Any] = {"record_files": True}
IMPLICIT: dict[str, Any] = {"compile_once": True}
OPERATIONS: dict[str, tuple[Prepare, dict[str, Any]]] = {
    "a hit": (_hit, {}),
    "a hit, record in a file": (_hit, FILES),
    "a miss": (_miss, {}),
    "a put of a new key": (_put, {}),
    "a put of a known key": (_put_again, {}),
    "a put of a known key, record in a file": (_put_again, FILES),
    "a put that is synced": (_put_again, {"fsync": True}),
    "a put over the cap": (_put, {"max_size_bytes": CAP}),
    "get_or_compute": (_compute, {}),
    "get_or_compute of a known key": (_do_not_compute, {}),
    "a miss that has the turn, and a put": (_look_up_and_store, IMPLICIT),
    "a miss that has the turn, and close": (_look_up_and_close, IMPLICIT),
    "a delete": (_delete, {}),
    "a delete, record in a file": (_delete, FILES),
    "an eviction": (_evict, {}),
    "stats": (_stats, {}),
    "close": (_close, {}),
}
# How many other entries there are before it.
OTHERS = {"a put over the cap": 8, "an eviction": 4}


def _fill(cache: FileStreamProgramCache, operation: str) -> None:
    for number in range(OTHERS.get(operation, 0)):
        cache[b"%d" % number] = bytes(2400)


@pytest.mark.slow
@pytest.mark.parametrize(
    "errors, goes_on",
    [
        ((errno.EIO,), (False,)),
        pytest.param(ERRORS, (False, True), marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whichever_call_fails_the_caller_goes_on_and_nothing_is_left(
    cache_path: Path, failing_calls: FailingCalls, operation: str, errors: Sequence[int], goes_on: Sequence[bool]
) -> None:
    prepare, options = OPERATIONS[operation]
    wrong: list[str] = []
    with FileStreamProgramCache(cache_path, lock_timeout_seconds=0.05, **options) as cache:
        prepare(cache)()
        for kind in KINDS:
            _fill(cache, operation)
            for left in failing_calls.sites(prepare(cache), kind):
                for number, stays in product(errors, goes_on):
                    _fill(cache, operation)
                    action = prepare(cache)
                    try:
                        with failing_calls.failing(kind, left, number, goes_on=stays):
                            action()
                        _assert_usable(cache)
                    except Exception as error:  # noqa: BLE001 - all are reported
                        more = ", and each after it" if stays else ""
                        where = f"{kind} number {left}{more}: {errno.errorcode[number]}"
                        wrong.append(f"{where}\n{''.join(traceback.format_exception(error))}")
    assert not wrong, "\n".join(wrong)


# As FUSE has them. `flush` is what close(2) asks for, `getattr` what stat(2) does and what each open looks up.
CALLS = (
    "open", "create", "read", "write", "fsync", "flush", "unlink", "rename", "getattr", "readdir", "mkdir", "truncate",
    "getxattr", "setxattr", "utimens",
)  # fmt: skip


@pytest.fixture(scope="module")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mounted file system that fails the calls that it is asked to."""
    reason = why_no_fuse()
    if reason is not None:
        pytest.skip(reason)
    path = tmp_path_factory.mktemp("failing") / "disk"
    path.mkdir(mode=0o700)
    with mount_failing_disk(str(path), 1):
        yield path


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("calls", [("flush",), pytest.param(CALLS, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("operation", all_but(["get_or_compute"], OPERATIONS))
def test_on_a_file_system_whichever_call_fails_the_caller_goes_on_and_nothing_is_left(
    failing_disk: Path, operation: str, calls: Sequence[str]
) -> None:
    prepare, options = OPERATIONS[operation]
    # Which error it is, the library decides from the number alone, for all of which it is asked above.
    ways = (False, True) if len(calls) > 1 else (False,)
    disk, wrong = str(failing_disk), list[str]()
    path, beneath = failing_disk / operation, Path(f"{failing_disk}-backing") / operation
    cache = FileStreamProgramCache(path, lock_timeout_seconds=0.05, **options)
    # What does not fail, and is a hundred times as fast: to look at what is left.
    with cache, FileStreamProgramCache(beneath, **options) as other:
        prepare(cache)()
        for call, stays in product(calls, ways):
            for left in range(MOST_EACH):
                _fill(other, operation)
                action = prepare(cache)
                set_failures(disk, call=call, left=left, error=errno.EIO, goes_on=stays)
                try:
                    action()
                except Exception as error:  # noqa: BLE001 - all are reported
                    more = ", and each after it" if stays else ""
                    where = f"{call} number {left}{more}"
                    wrong.append(f"{where}\n{''.join(traceback.format_exception(error))}")
                failed = has_failed(disk)
                set_failures(disk, share=0)
                assert_nothing_is_held(cache)
                assert_nothing_is_left(other)
                cache[KEY] = b"newest"
                assert cache[KEY] == b"newest"
                if not failed:
                    break
    assert not wrong, "\n".join(wrong)


def _assert_usable(cache: FileStreamProgramCache) -> None:
    assert_nothing_is_left(cache)
    cache[KEY] = b"newest"
    assert cache[KEY] == b"newest"
