# SPDX-License-Identifier: Apache-2.0
"""A SQLiteProgramCache whose file is damaged: no wrong byte is served, and nothing raises."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import Entry, FormatError, SQLiteProgramCache
from tests.matrix_sampling import diagonals
from tests.threads import run_threads
from tests.unit.sqlite.sqlite_file import edited

DAMAGE = {
    "a byte of the code": "UPDATE programs SET code = CAST('K' || substr(code, 2) AS BLOB)",
    "the end of the code": "UPDATE programs SET code = substr(code, 1, 3)",
    "no code": "UPDATE programs SET code = x''",
    "code that is a number": "UPDATE programs SET code = 5",
    "text that is not UTF-8": "UPDATE programs SET digest = CAST(x'ff00fe' AS TEXT)",
    "the metadata": "UPDATE programs SET tail = x'7b7d'",
    "the cost": "UPDATE programs SET cost_ns = cost_ns + 1",
    "a cost that is not a number": "UPDATE programs SET cost_ns = 'much'",
    "the digest": "UPDATE programs SET digest = zeroblob(16)",
    "another key's row": "UPDATE entries SET key = CAST(CASE key WHEN x'6b' THEN 'o' ELSE 'k' END || '2' AS BLOB)",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_row_that_no_writer_stored_is_a_miss_and_is_removed(
    cache: SQLiteProgramCache, path: Path, damage: str
) -> None:
    for key in ("k", "o"):
        cache.put_entry(key, Entry(b"code of " + key.encode(), {"a": 1, "compile_cost_ns": 5}))
    with edited(path) as connection:
        connection.execute(DAMAGE[damage])
    names = ("k2", "o2") if damage == "another key's row" else ("k", "o")
    for name in names:
        assert cache.get(name) is None
    assert (cache.stats().corrupt_entries, cache.stats().misses, len(cache)) == (2, 2, 0)
    assert cache.stats().bytes == 0
    cache["k"] = b"again"
    assert cache["k"] == b"again"


def test_removing_a_corrupt_row_spares_what_replaced_it(cache: SQLiteProgramCache, path: Path) -> None:
    from lockcache.sqlite import rows

    cache["k"] = b"first"
    with edited(path) as connection:
        connection.execute("UPDATE programs SET code = x'00'")
        found = rows.load(connection, b"k")
        assert isinstance(found, rows.CorruptRow)
        cache["k"] = b"second"
        rows.prune(connection, found)
    assert cache["k"] == b"second"


def ruin_garbage(path: Path) -> None:
    path.write_bytes(b"this is no database" * 500)


def ruin_truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def ruin_header(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"\0" * 100)


def ruin_schema(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)


def ruin_tables(path: Path) -> None:
    with edited(path) as connection:
        for table in ("entries", "programs", "totals"):
            connection.execute(f"DROP TABLE {table}")


def ruin_with_log(path: Path) -> None:
    for name in (path, Path(f"{path}-wal")):
        with open(name, "r+b") as file:
            file.write(os.urandom(name.stat().st_size))


RUINS = [ruin_garbage, ruin_truncated, ruin_header, ruin_schema, ruin_tables]


@pytest.mark.parametrize("ruin, first", diagonals(RUINS, ["read", "write", "delete", "len"], 4))
def test_a_ruined_file_is_set_aside_with_a_warning_and_a_new_one_begun(
    path: Path, caplog: pytest.LogCaptureFixture, ruin: Callable[[Path], None], first: str
) -> None:
    with SQLiteProgramCache(path) as cache:
        cache.update({str(number): os.urandom(5000) for number in range(50)})
    ruin(path)
    ruined = path.read_bytes()
    with caplog.at_level(logging.WARNING, "lockcache"), SQLiteProgramCache(path) as cache:
        if first == "read":
            assert [cache.get(str(number)) for number in range(50)].count(None) >= 1
        if first == "delete":
            with contextlib.suppress(KeyError):
                for number in range(50):
                    del cache[str(number)]
        if first == "len":
            assert len(cache) >= 0
        cache.update({str(number): b"new" for number in range(50)})
        assert [cache[str(number)] for number in range(50)] == [b"new"] * 50
        assert (len(cache), cache.stats().dropped_writes) == (50, 0)
    aside = [file for file in path.parent.iterdir() if ".corrupt-" in file.name]
    assert len(aside) == 1
    assert ruin not in (ruin_garbage, ruin_header) or aside[0].read_bytes() == ruined
    assert [
        record for record in caplog.records if "set aside" in record.getMessage() and aside[0].name in record.message
    ]


def test_a_file_that_is_ruined_while_it_is_open_is_set_aside_with_its_log(path: Path) -> None:
    cache = SQLiteProgramCache(path)
    cache.update({str(number): os.urandom(5000) for number in range(50)})
    ruin_with_log(path)
    for number in range(50):
        cache[str(number)] = b"new"
        assert cache.get(str(number)) in (None, b"new")
    cache.update({str(number): b"new" for number in range(50)})
    assert len(cache) == 50
    cache.close()
    cache = SQLiteProgramCache(path)
    assert [cache[str(number)] for number in range(50)] == [b"new"] * 50
    cache.close()


def test_threads_that_find_one_ruin_at_once_begin_one_new_file(path: Path) -> None:
    for turn in range(5):
        cache = SQLiteProgramCache(path)
        cache.close()
        ruin_garbage(path)
        start = threading.Barrier(6)

        def work(number: int, cache: SQLiteProgramCache = cache, start: threading.Barrier = start) -> None:
            start.wait(30)
            cache.get("k")
            cache[str(number)] = b"new"
            assert cache[str(number)] == b"new"

        run_threads(work, [(number,) for number in range(6)])
        assert len(cache) == 6
        assert len([file for file in path.parent.iterdir() if ".corrupt-" in file.name]) == turn + 1
        cache.close()


def test_of_two_objects_that_find_one_ruin_the_second_keeps_the_new_file(path: Path) -> None:
    one, other = SQLiteProgramCache(path), SQLiteProgramCache(path)
    one["k"], other["o"] = b"1", b"2"
    one.close()
    ruin_with_log(path)
    one["k"] = b"new"
    assert other.get("k") == b"new"
    other["o"] = b"new"
    assert (one["k"], one["o"]) == (b"new", b"new")
    for cache in (one, other):
        cache.close()
    names = [file.name for file in path.parent.iterdir() if ".corrupt-" in file.name]
    assert sorted(name.rpartition("-")[2] for name in names if name.endswith(("-wal", "-shm"))) == ["shm", "wal"]
    assert len(names) == 3


@pytest.mark.parametrize("seed", range(10))
def test_flipped_bytes_anywhere_in_the_file_never_raise_and_are_never_served(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    values = {str(number): draw.randbytes(draw.randrange(3000)) for number in range(40)}
    with SQLiteProgramCache(path, max_size_bytes=200_000) as cache:
        cache.update(values)
    with open(path, "r+b") as file:
        for _ in range(draw.choice((1, 10, 200))):
            file.seek(draw.randrange(path.stat().st_size))
            file.write(draw.randbytes(1))
    try:
        cache = SQLiteProgramCache(path, max_size_bytes=200_000)
    except FormatError:
        return  # a flipped format number: the file is said to be a newer lockcache's
    with cache:
        for key, value in values.items():
            assert cache.get(key) in (None, value)
        cache.stats()
        for key in values:
            cache[key] = b"new " + key.encode()
            assert cache.get(key) in (None, b"new " + key.encode())
        len(cache)
        cache.clear()
        assert (len(cache), cache.stats().bytes) == (0, 0)


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with edited(path) as connection:
        connection.execute("CREATE TABLE mail (text)")
    before = path.read_bytes()
    with pytest.raises(FormatError, match="another program"):
        SQLiteProgramCache(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    SQLiteProgramCache(path).close()
    with edited(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(FormatError, match=r"format 99.*upgrade"):
        SQLiteProgramCache(path)


def test_a_file_that_is_deleted_underneath_is_begun_anew(cache: SQLiteProgramCache, path: Path) -> None:
    cache["k"] = b"1"
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    assert cache.get("k") is None
    cache["k"] = b"2"
    assert (cache["k"], len(cache), path.exists()) == (b"2", 1, True)


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_moment_leaves_whole_entries(path: Path) -> None:
    code = (
        "import sys\n"
        "from lockcache import SQLiteProgramCache\n"
        "cache = SQLiteProgramCache(sys.argv[1], max_size_bytes=300_000)\n"
        "for number in range(10**9):\n"
        "    cache[str(number % 50)] = str(number).encode().rjust(8) * 1000\n"
        "    if number % 60 == int(sys.argv[2]): print(number, flush=True)\n"
    )
    for turn in range(6):
        arguments = [sys.executable, "-c", code, str(path), str(turn * 7)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        with SQLiteProgramCache(path, max_size_bytes=300_000) as cache:
            found = [code for code in (cache.get(str(number)) for number in range(50)) if code is not None]
            assert found
            assert all(code == code[:8] * 1000 for code in found)
            stats = cache.stats()
            assert (stats.corrupt_entries, stats.entries, stats.bytes) == (0, len(found), len(found) * 8000)
    assert len(list(path.parent.iterdir())) == 1
