# SPDX-License-Identifier: Apache-2.0
"""The tables of files in the design: they have the names that the code makes, and no more kinds than are allowed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.disk.layout import GuestLayout, Layout, QuarantinedName, StagedName, ViewName, entry_name
from tests.docs.pages import PROJECT

MOST_CORE = 21

_TEXT = (PROJECT / "docs/design.md").read_text()
_ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in _TEXT.splitlines() if line.startswith("| ")]
_TITLES = [index for index, row in enumerate(_ROWS) if row[0] in ("core", "feature")]
CORE = [row[0].strip("`") for row in _ROWS[_TITLES[0] + 1 : _TITLES[1]]]
FEATURES = [row[1].strip("`") for row in _ROWS[_TITLES[1] + 1 :] if row[1].startswith("`lockcache/")]

#: The parts of names that stand for others.
_PARTS = {
    "ab": "[0-9a-f]{2}",
    "ENTRY": "[0-9a-f]{62,64}",
    "STAGED": r"[0-9a-f]{2}\.\d+\.\w+\.\d+\.\d+\.\d+",
    "VIEW": r"[0-9a-f]{62}\.[0-9a-f]{32}\.\d+",
    "TIME": r"\d{8}T\d{6}\.\d{9}Z",
    "WRONG": "[a-z]+",
    "SERVER": "[0-9a-f]{16}",
    "HOST": "[0-9a-f]+",
    "N": r"\d+",
    **dict.fromkeys(("KEY", "FILE", "FOLDER", "RUN"), "[^/]+"),
}
_PART = re.compile(rf"(?<![A-Za-z])({'|'.join(_PARTS)})(?![A-Za-z])")


def _pattern(row: str) -> re.Pattern[str]:
    pieces = _PART.split(row)
    return re.compile("".join(_PARTS[each] if odd % 2 else re.escape(each) for odd, each in enumerate(pieces)))


def _rows_of(path: str) -> list[str]:
    return [row for row in (*CORE, *FEATURES) if _pattern(row).fullmatch(path)]


def _paths_of_code() -> set[str]:
    """Returns the paths below a root ``/R`` that the layout has, and those that other rooms make next to them."""
    name = entry_name(b"k")
    found: set[str] = set()
    for layout in (Layout("/R", is_shared=False), GuestLayout("/R")):
        found |= {value for value in vars(layout).values() if isinstance(value, str)}
        quarantined = QuarantinedName("20261121T170102.123456789Z", name, "digest")
        found |= {f"{layout.quarantine}/{each}" for each in (quarantined, quarantined._replace(is_record=True))}
        found |= {layout.entry(name), layout.record(name), layout.lock(7), layout.lease(name, 3)}
        found |= {f"{layout.leases}/{name}.bell", f"{layout.tmp}/{StagedName(7, 9, 'ab12', 1, 2, 3)}"}
        found.add(f"{layout.view(ViewName(name, '0' * 32, 9))}/kernel.cubin")
    for module in (PROJECT / "lockcache").rglob("*.py"):
        text = module.read_text()
        if "remote" in str(module) or module.name == "prefetching.py":
            found |= {f"/R/lockcache/remote/{'0' * 16}/{file}" for file in re.findall(r'f"\{folder\}/([\w.]+)"', text)}
    return {path.removeprefix("/R/") for path in found if path.startswith("/R/")}


def _folders(rows: list[str]) -> set[str]:
    return {parent for row in rows for parent in map(str, Path(row).parents)}


def test_the_core_has_no_more_kinds_of_file_than_are_allowed() -> None:
    assert len(CORE) == len(set(CORE)) <= MOST_CORE
    assert not set(CORE) & set(FEATURES)


def test_each_name_that_the_code_makes_has_one_row() -> None:
    folders = _folders([*CORE, *FEATURES])
    files = {path for path in _paths_of_code() if path not in folders}
    assert {path: _rows_of(path) for path in files if len(_rows_of(path)) != 1} == {}


@pytest.mark.parametrize("row", CORE)
def test_each_row_of_the_core_is_a_name_that_the_code_makes(row: str) -> None:
    assert row == "CACHEDIR.TAG" or any(_pattern(row).fullmatch(path) for path in _paths_of_code())


def test_a_run_of_all_features_leaves_only_files_of_the_table(cache_path: Path, tmp_path: Path) -> None:
    bundle, program = str(tmp_path / "one.lcb"), [sys.executable, "-m", "lockcache"]
    with FileStreamProgramCache(tmp_path / "other") as other:
        other[b"seeded"] = b"code"
    subprocess.run([*program, "bundle", "make", str(tmp_path / "other"), "-o", bundle], check=True, capture_output=True)
    with FileStreamProgramCache(
        cache_path, record_files=True, compile_once=True, max_size_bytes=10**8, seed=bundle
    ) as cache:
        state(b"stated", {"option arch": "sm_90"}, "saxpy")
        cache[b"stated"] = b"code"
        assert cache.get_or_compute(b"computed", lambda: b"code") == b"code"
        cache.put_files(b"files", {"kernel.cubin": b"code"})
        assert cache.view_files(b"files")
        cache[b"damaged"] = b"code"
    layout = Layout(str(cache_path))
    with open(layout.entry(entry_name(b"damaged")), "rb+") as file:
        file.write(b"edoc")
    subprocess.run([*program, "verify", "--repair", str(cache_path)], check=False, capture_output=True)
    run = [*program, "run", "--dir", str(cache_path), sys.executable, "-c", "import lockcache"]
    subprocess.run(run, check=True, capture_output=True)
    daemon = [sys.executable, "-m", "lockcache_daemon", "--once", "--max-size", "50M", str(cache_path)]
    subprocess.run(daemon, check=True, capture_output=True)
    left = {
        os.path.relpath(os.path.join(folder, file), cache_path)
        for folder, _, files in os.walk(cache_path)
        for file in files
    }
    rows = {path: _rows_of(path) for path in left}
    assert {path for path, found in rows.items() if len(found) != 1} == set()
    seen = {row for found in rows.values() for row in found}
    assert {"lockcache/state", "lockcache/misses", "lockcache/seed.lcb", "lockcache/views/ab/VIEW/FILE"} <= seen
    assert {"lockcache/records/ab/ENTRY", "lockcache/daemon.lock", "lockcache/quarantine/TIME-ENTRY-WRONG"} <= seen
