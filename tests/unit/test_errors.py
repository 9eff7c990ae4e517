# SPDX-License-Identifier: Apache-2.0
"""The error tree, and what a message says of a missing extra."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import errors
from lockcache.errors import (
    ArchiveError,
    FormatError,
    LockcacheError,
    LockTimeoutError,
    NoDefaultDirError,
    ReentrantComputeError,
    SealedError,
    SigningKeyError,
    UncacheableError,
    UnsafeCacheDirError,
    how_to_install,
    in_words,
)

BASES = {
    ArchiveError: ValueError,
    UnsafeCacheDirError: PermissionError,
    FormatError: OSError,
    NoDefaultDirError: OSError,
    SigningKeyError: ValueError,
    LockTimeoutError: TimeoutError,
    ReentrantComputeError: RuntimeError,
    SealedError: RuntimeError,
    UncacheableError: ValueError,
}
OF_A_PATH = [UnsafeCacheDirError, FormatError, SigningKeyError, LockTimeoutError]


def test_every_error_has_one_root_and_keeps_a_built_in_base():
    public = {getattr(errors, name) for name in errors.__all__} - {how_to_install, in_words}
    assert public == {LockcacheError, *BASES}
    for error, base in BASES.items():
        assert issubclass(error, LockcacheError)
        assert issubclass(error, base)


@pytest.mark.parametrize("error", OF_A_PATH)
def test_an_error_about_a_path_says_its_message_and_keeps_the_path(error):
    raised = error("do this next", "/some/path")
    assert (str(raised), raised.path) == ("do this next", "/some/path")


@pytest.mark.parametrize("error", OF_A_PATH)
def test_an_error_about_a_path_survives_the_way_from_a_worker(error):
    raised = pickle.loads(pickle.dumps(error("do this next", "/some/path")))
    assert (type(raised), str(raised), raised.path) == (error, "do this next", "/some/path")


def test_an_uncacheable_error_survives_the_way_from_a_worker():
    raised = pickle.loads(pickle.dumps(UncacheableError("because of time")))
    assert (type(raised), str(raised)) == (UncacheableError, "because of time")


@pytest.mark.parametrize(
    "origin, command",
    [
        (None, "pip install 'lockcache[cli]'"),
        ({"url": "file:///src/lock%20cache", "dir_info": {}}, "pip install '/src/lock cache[cli]'"),
        ({"url": "file:///src/lockcache", "dir_info": {"editable": True}}, "pip install -e '/src/lockcache[cli]'"),
        ({"url": "file:///x/a.whl", "archive_info": {}}, "pip install 'lockcache[cli] @ file:///x/a.whl'"),
        (
            {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'lockcache[cli] @ git+https://example.org/a.git'",
        ),
    ],
    ids=["index", "checkout", "editable", "wheel", "git"],
)
def test_an_extra_is_installed_from_where_lockcache_came_from(
    origin: object, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lockcache-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: lockcache\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert how_to_install("cli") == command


@pytest.mark.slow
def test_the_compiling_part_without_its_extra_says_what_to_install() -> None:
    code = "import sys; sys.modules['cuda'] = None; import lockcache.cuda"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: lockcache.cuda needs cuda.core: {how_to_install('cuda')}"
