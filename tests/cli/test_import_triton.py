"""``lockcache import-triton``: a cache in Triton's own format, taken over; what is damaged or planted is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.integrations.triton import stored_name
from tests.cli.command import run
from tests.daemon.directories import photograph

GROUPED, ALONE = "A" * 52, "B" * 52


@pytest.fixture
def triton(tmp_path: Path) -> Path:
    root = tmp_path / "triton"
    write(root, GROUPED)
    (root / ALONE).mkdir()
    (root / ALONE / "launcher.so").write_bytes(b"machine code")
    for path in (root, *root.iterdir()):
        path.chmod(0o700)
    return root


def write(root: Path, key: str) -> None:
    folder = root / key
    folder.mkdir(parents=True)
    known = {"triton_version": "3.9.0", "target": {"arch": 90}}
    files = {"k.cubin": b"code", "k.ptx": b"text", "k.json": json.dumps(known).encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    group = {"child_paths": {name: f"/elsewhere/{name}" for name in files}}
    (folder / "__grp__k.json").write_text(json.dumps(group))


def imported(triton: Path, target: Path, *options: str) -> tuple[int, dict[str, int]]:
    ended = run("import-triton", "--json", *options, triton, target)
    assert ended.stderr == ""
    return ended.returncode, json.loads(ended.stdout)


def test_kernels_and_launchers_are_where_the_adapter_looks(triton: Path, cache_path: Path) -> None:
    code, found = imported(triton, cache_path, "--dry-run")
    assert (code, found["would_import"], cache_path.exists()) == (0, 2, False)
    assert imported(triton, cache_path)[1]["imported"] == 2
    with FileStreamProgramCache(cache_path) as cache:
        assert set(cache.get_files(f"triton/3.9.0/{GROUPED}/k.json") or ()) == {"k.cubin", "k.ptx", "k.json"}
        assert cache.get_files(f"triton/3.9.0/{stored_name(ALONE, 'launcher.so')}") == {"launcher.so": b"machine code"}
    assert imported(triton, cache_path)[1] | {"imported": 0} == {
        **dict.fromkeys(("imported", "damaged", "dropped", "without_version"), 0),
        "present": 2,
    }
    found = imported(triton, cache_path, "--dry-run")[1]
    assert (found["would_import"], found["present"]) == (0, 2)


def test_a_dry_run_changes_nothing_in_a_cache_that_is_there(triton: Path, cache_path: Path) -> None:
    imported(triton, cache_path)
    write(triton, "C" * 52)
    before = photograph(cache_path)
    found = imported(triton, cache_path, "--dry-run")[1]
    assert (found["would_import"], found["present"]) == (1, 2)
    assert photograph(cache_path) == before


def test_variables_of_programs_are_not_for_this_command(
    triton: Path, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCKCACHE_DISABLE", "LOCKCACHE_READONLY"):
        monkeypatch.setenv(name, "1")
    code, found = imported(triton, cache_path)
    assert (code, found["imported"], found["dropped"]) == (0, 2, 0)


def test_what_is_planted_or_damaged_is_left_out(triton: Path, cache_path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    for number, damage in enumerate(("link", "list", "empty", "gone")):
        key = chr(ord("C") + number) * 52
        write(triton, key)
        if damage == "link":
            (triton / key / "k.cubin").unlink()
            (triton / key / "k.cubin").symlink_to(secret)
        elif damage == "list":
            (triton / key / "__grp__k.json").write_text('{"child_paths": {"../../secret": ""}}')
        elif damage == "empty":
            (triton / key / "k.cubin").write_bytes(b"")
        else:
            (triton / key / "k.ptx").unlink()
    code, found = imported(triton, cache_path)
    assert (code, found["imported"]) == (1, 2)
    assert found["damaged"] == 4
    assert not any(b"secret" in path.read_bytes() for path in cache_path.glob("entries/*/*"))


@pytest.mark.root
def test_a_directory_that_others_may_write_to_is_refused(triton: Path, cache_path: Path) -> None:
    triton.chmod(0o777)
    ended = run("import-triton", triton, cache_path)
    assert (ended.returncode, cache_path.exists()) == (2, False), ended
    ended = run("import-triton", cache_path.parent / "none", cache_path)
    assert (ended.returncode, "none: no such directory" in ended.stderr) == (2, True)
