# SPDX-License-Identifier: Apache-2.0
"""``lockcache why``: the parts that differ, of a miss and of an entry, from whatever is found in the directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache.filestream.disk.layout import entry_name
from tests.cli.command import run
from tests.unit.bundle.bundles import bundle_of, write
from tests.unit.material import entry_path

PARTS = {"compiler": "NVRTC 13.5 build 3f2a9c41", "option arch": "sm_90", "code": "c" * 80, "define A": "1"}


def compiled(cache: FileStreamProgramCache, key: str, label: str = "saxpy", **changed: str) -> None:
    state(key.encode(), {**PARTS, **{name.replace("_", " "): value for name, value in changed.items()}}, label)
    cache[key] = b"code"


@pytest.fixture
def filled(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "first")
        compiled(cache, "far", compiler="NVRTC 13.4 build 00112233", option_arch="sm_80", define_A="2")
        compiled(cache, "last", option_arch="sm_100")
    return cache_path


def why(*arguments: object) -> list[dict[str, Any]]:
    ended = run("why", "--json", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(ended.stdout)["misses"]
    return found


def test_the_last_miss_is_compared_with_the_nearest_entry(filled: Path) -> None:
    lines = run("why", filled).stdout.splitlines()
    assert lines[0].startswith(f"saxpy ({entry_name(b'last')[:12]}) was compiled ")
    assert lines[0].endswith(" ago: option arch differs from the nearest entry")
    assert lines[1].startswith(f"  {entry_name(b'first')[:12]}  saxpy, stored ")
    assert lines[1].endswith("ago: 1 part differs (compiled key / this entry)")
    assert lines[2] == "    option arch  sm_100 / sm_90"
    assert lines[3].endswith(": 3 parts differ (compiled key / this entry)")


@pytest.mark.parametrize("arguments", [("--last", "2"), ("--last=2",), ("--last", 50)])
def test_the_last_so_many_the_latest_first(arguments: tuple[object, ...], filled: Path) -> None:
    found = why(*arguments, filled)
    most = 2 if arguments[-1] != 50 else 3
    assert [miss["name"] for miss in found] == [entry_name(key) for key in (b"last", b"far", b"first")][:most]
    assert found[0]["label"] == "saxpy"


def test_one_argument_is_a_directory_if_there_is_one_else_a_key(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "far"
    with FileStreamProgramCache(other) as cache:
        compiled(cache, "elsewhere")
    here = {"LOCKCACHE_DIR": str(filled)}
    ended = run("why", "far", **here)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"'far' is a directory here and a key in {filled}; write --dir far, or far {filled}" in ended.stderr
    assert f"saxpy ({entry_name(b'elsewhere')[:12]})" in run("why", "--dir", "far", **here).stdout
    assert f"saxpy ({entry_name(b'far')[:12]})" in run("why", "far", filled, **here).stdout
    assert f"saxpy ({entry_name(b'elsewhere')[:12]})" in run("why", "./far", **here).stdout
    other.rename(tmp_path / "away")
    assert f"saxpy ({entry_name(b'far')[:12]})" in run("why", "far", **here).stdout


def test_a_name_that_several_entries_have_asks_about_its_latest_miss(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        compiled(cache, "another", label="gemm")
        assert [miss["name"] for miss in why("saxpy", filled)] == [entry_name(b"last")]
        del cache["another"]
    assert [miss["name"] for miss in why("gemm", filled)] == [entry_name(b"another")]
    (filled / "lockcache" / "misses").unlink()
    ended = run("why", "saxpy", filled)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "several entries are called 'saxpy'" in ended.stderr


def test_a_kernel_is_named_by_any_of_its_names_or_by_its_template(cache_path: Path) -> None:
    label = "scale<float>, scale<int>, shift[*]"
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "several", label=label)
        compiled(cache, "longer", label="rescale<float>")
    for asked in ("scale<int>", "scale", "shift[*]", label):
        assert [miss["label"] for miss in why(asked, cache_path)] == [label]
        assert run("inspect", asked, cache_path).stdout.splitlines()[0].endswith(entry_name(b"several"))
    (cache_path / "lockcache" / "misses").unlink()
    assert [miss["label"] for miss in why("scale", cache_path)] == [label]
    for asked in ("scal", "float", "shift"):
        assert f"there is no entry '{asked}'" in run("inspect", asked, cache_path).stderr
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "exact", label="scale")
    assert run("inspect", "scale", cache_path).stdout.splitlines()[0].endswith(entry_name(b"exact"))


def test_an_entry_whose_miss_is_forgotten_still_says_what_its_key_was_made_of(filled: Path) -> None:
    (filled / "lockcache" / "misses").unlink()
    [found] = why("last", filled)
    assert [each["part"] for each in found["nearest"][0]["differences"]] == ["option arch"]
    ended = run("why", filled)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no miss was reported" in ended.stderr


def test_a_key_that_was_compiled_before_is_said_to_have_gone(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        del cache["first"]
        compiled(cache, "first")
    assert "the same key was compiled" in run("why", filled).stdout


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda path: path.write_bytes(b"else"), "its entry was there and damaged"),
        (lambda path: os.truncate(path, 1), "its entry was there and damaged"),
        (lambda path: os.removexattr(path, "user.lockcache"), "its entry was there without its record"),
        (lambda path: None, "the entry that was stored then had gone, or was not waited for"),
    ],
    ids=["other bytes", "cut off", "no record", "whole"],
)
def test_what_was_wrong_with_the_entry_of_the_key_is_said(
    damage: Callable[[Path], object], said: str, filled: Path
) -> None:
    damage(Path(entry_path(filled, b"first")))
    with FileStreamProgramCache(filled, verified_only=True) as cache:
        compiled(cache, "first")
    assert f" ago too: {said}" in run("why", filled).stdout


def test_an_entry_that_was_compiled_again_on_request_is_said_to_be_that(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    with FileStreamProgramCache(filled) as cache:
        compiled(cache, "first")
        compiled(cache, "never stored before", define_A="7")
    first, never = why("--last", "2", filled)[::-1]
    assert (first["replaced"], never["replaced"]) == ("renewed", None)
    assert " ago too: its entry was there, and LOCKCACHE_RECACHE had it" in run("why", "first", filled).stdout


def test_an_entry_that_no_key_of_ours_signed_is_said_to_be_that(filled: Path, tmp_path: Path) -> None:
    assert run("key", "new", tmp_path / "keys").returncode == 0
    with FileStreamProgramCache(filled, signing_key_file=tmp_path / "keys") as cache:
        compiled(cache, "first")
    assert "its entry was there, and its signature could not be verified or was missing" in run("why", filled).stdout


def test_what_was_stored_after_a_miss_is_no_reason_for_it(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        compiled(cache, "later", option_arch="sm_100", define_A="3")
    assert [each["name"] for each in why("last", filled)[0]["nearest"]] == [entry_name(b"first"), entry_name(b"far")]
    lines = run("why", "first", filled).stdout.splitlines()  # before which none was stored
    assert (
        next(line.split("ago")[1] for line in lines if ", stored " in line)
        == " (after it): 1 part differs (compiled key / this entry)"
    )


def test_the_same_source_is_nearer_than_another_one(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "same", compiler="NVRTC 13.4 build 00112233", option_arch="sm_80", define_A="2")
        for number in range(40):
            compiled(cache, f"other {number}", label="other", code=f"{number}")
        compiled(cache, "missed")
    [miss] = why(cache_path)
    assert miss["nearest"][0]["name"] == entry_name(b"same")


def test_of_equally_many_differences_the_one_with_more_in_common_is_nearer(cache_path: Path) -> None:
    shared = {"option_generate_line_info": "on", "working_directory": "/one"}
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "with", **shared)
        compiled(cache, "without")
        compiled(cache, "missed", **{**shared, "working_directory": "/two"})
    [miss] = why(cache_path)
    assert [each["name"] for each in miss["nearest"]] == [entry_name(b"with"), entry_name(b"without")]


def test_a_first_program_of_its_kind_is_said_to_be_that(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache["plain"] = b"x"
        compiled(cache, "first")
    assert "ago: new, no other entry is called saxpy (2 entries compared)" in run("why", cache_path).stdout


def test_entries_that_were_unpacked_are_compared_too(filled: Path, tmp_path: Path) -> None:
    for words in (("pack", tmp_path / "all.lcb", filled), ("unpack", tmp_path / "all.lcb", tmp_path / "other")):
        assert run(*words).returncode == 0
    [asked] = why("last", tmp_path / "other")
    assert [each["name"] for each in asked["nearest"]] == [entry_name(b"first"), entry_name(b"far")]


def test_entries_of_the_seed_are_compared_and_marked(filled: Path, tmp_path: Path) -> None:
    seed, node = tmp_path / "seed.lcb", tmp_path / "node"
    assert run("bundle", "make", "-o", seed, filled).returncode == 0
    with FileStreamProgramCache(node, seed=seed) as cache:
        del cache["last"]  # the nearest of all, which is not served
        compiled(cache, "again", option_arch="sm_100", define_A="3")
    [found] = why(node)
    assert [(each["name"], each["in_seed"]) for each in found["nearest"]] == [
        (entry_name(b"first"), True),
        (entry_name(b"far"), True),
    ]
    assert (found["looked_at"], found["seeded"]) == (1, {"looked_at": 2, "without_parts": 0})
    lines = run("why", node).stdout.splitlines()
    assert lines[1].startswith(f"  {entry_name(b'first')[:12]}  saxpy, stored ")
    assert lines[1].endswith(" ago, in the seed: 2 parts differ (compiled key / this entry)")
    with FileStreamProgramCache(node) as cache:
        compiled(cache, "first")  # over the seed's
        compiled(cache, "another", option_arch="sm_90", define_A="3")
    assert [(each["name"], each["in_seed"]) for each in why(node)[0]["nearest"]][:2] == [
        (entry_name(b"first"), False),
        (entry_name(b"again"), False),
    ]


@pytest.mark.parametrize("damage", [lambda seed: os.truncate(seed, 200), lambda seed: seed.write_bytes(b"")])
def test_a_seed_that_cannot_be_read_is_said_not_to_be_compared(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    seed, node = write(tmp_path / "seed.lcb", bundle_of({b"one": b"x"})), tmp_path / "node"
    with FileStreamProgramCache(node, seed=seed) as cache:
        compiled(cache, "first")
    damage(node / "lockcache" / "seed.lcb")
    ended = run("why", node)
    assert (ended.returncode, "new, no other entry is called saxpy (1 entry compared)" in ended.stdout) == (0, True)
    assert "the entries of the seed are not compared: " in ended.stderr


def test_an_entry_whose_program_made_its_key_says_nothing(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        cache["plain"] = b"x"
    ended = run("why", "plain", filled)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "does not say what its key was made of" in ended.stderr


def test_what_others_wrote_reaches_no_terminal(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "first", label="x\x1b[31m")
    ring = cache_path / "lockcache" / "misses"
    assert "\x1b" not in run("why", cache_path).stdout
    ring.write_bytes(b"LCm\x01" + b"\xff" * 70_000)
    assert "no miss was reported" in run("why", cache_path).stderr


def test_a_frameworks_key_is_compared_with_keys_of_that_framework_alone(cache_path: Path) -> None:
    same = {"target": "sm_90", "variable NV_NVVM_VERSION": "2"}
    with FileStreamProgramCache(cache_path) as cache:
        for key, parts in (
            ("a program", same),
            ("other", {"framework": "jax", "version": "1", **same}),
            ("older", {"framework": "triton", "version": "1", "target": "sm_80"}),
            ("miss", {"framework": "triton", "version": "2", **same}),
        ):
            state(key.encode(), parts, key)
            cache[key] = b"code"
        state(b"another program", same, "another program")
        cache["another program"] = b"code"
    [program, miss] = why("--last", "2", cache_path)
    assert [each["label"] for each in miss["nearest"]] == ["older"]
    assert [each["label"] for each in program["nearest"]] == ["a program"]


def test_a_new_kernel_is_said_to_be_new_without_entries_of_others(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        compiled(cache, "new", label="scale<float>", code="another source")
    [line] = run("why", filled).stdout.splitlines()
    assert line.endswith(" ago: new, no other entry is called scale (4 entries compared)")


def test_an_instance_of_the_same_template_is_of_the_same_kernel(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        compiled(cache, "float", label="scale<float>", code="one")
        compiled(cache, "double", label="scale<double>", code="two")
    lines = run("why", cache_path).stdout.splitlines()
    assert lines[0].startswith("scale<double> (")
    assert lines[0].endswith(": code differs from the nearest entry")
    assert "scale<float>, stored " in lines[1]


def test_the_same_source_under_another_name_is_of_the_same_kernel(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        compiled(cache, "renamed", label="axpy", define_A="5")
    assert run("why", filled).stdout.startswith("axpy (")
    assert "define A  5 / 1" in " ".join(run("why", filled).stdout.split(" ")).replace("   ", "  ")


def test_many_headers_are_one_line(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        for key in ("old", "new"):
            compiled(cache, key, **{f"header_h{number}.h": key for number in range(7)})
    shown = run("why", cache_path).stdout
    assert " ago: headers differ from the nearest entry" in shown
    assert "    7 headers  h0.h, h1.h, h2.h, ... (all: --json)" in shown
