# SPDX-License-Identifier: Apache-2.0
"""``lockcache import-triton``: a cache in Triton's own format, taken over; what is damaged or planted is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.integrations.triton import stored_name
from tests.cli.command import run

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
