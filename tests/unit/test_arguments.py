# SPDX-License-Identifier: Apache-2.0
"""Where a cache lives."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, arguments
from lockcache.arguments import (
    coerce_compile_once,
    coerce_group,
    coerce_key_file,
    coerce_lease_timeout,
    configured_cap,
    resolve_path,
)


def test_the_environment_variable_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKCACHE_DIR", str(tmp_path / "x"))
    assert resolve_path(None) == str(tmp_path / "x")
    with FileStreamProgramCache() as cache:
        assert cache.path == str(tmp_path / "x")


@pytest.mark.parametrize("setting", [None, ""])
def test_without_it_the_user_cache_directory_is_used(monkeypatch, tmp_path, setting):
    monkeypatch.delenv("LOCKCACHE_DIR", raising=False)
    if setting is not None:
        monkeypatch.setenv("LOCKCACHE_DIR", setting)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert resolve_path(None) == str(tmp_path / "lockcache")


def test_a_relative_path_becomes_absolute_and_stays_there(tmp_path, in_directory):
    with in_directory(tmp_path):
        cache = FileStreamProgramCache("cache")
    cache["k"] = b"1"
    assert cache.path == str(tmp_path / "cache")
    assert os.listdir(tmp_path) == ["cache"]


@pytest.mark.parametrize("given", ["/a/b", Path("/a/b"), "/a/x/../b", "/a/b/"])
def test_paths_may_be_str_or_pathlike(given):
    assert resolve_path(given) == "/a/b"


def test_a_tilde_is_a_home_wherever_the_path_comes_from(tmp_path, monkeypatch, in_directory):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCKCACHE_DIR", "~/kernels")
    assert resolve_path("~/x") == resolve_path(Path("~/x")) == str(tmp_path / "x")
    assert resolve_path(None) == str(tmp_path / "kernels")
    assert coerce_key_file("~/keys") == str(tmp_path / "keys")
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", "~/keys")
    assert coerce_key_file(None) == str(tmp_path / "keys")
    with in_directory(tmp_path):
        assert resolve_path("./~/x") == str(tmp_path / "~" / "x")


def test_the_home_of_a_user_who_is_not_there_is_refused_by_name():
    with pytest.raises(ValueError, match=r"path '~nobody-here/x': there is no user 'nobody-here'.* write \./~"):
        resolve_path("~nobody-here/x")


def test_the_cap_of_the_environment_is_a_size_or_an_error_that_names_the_variable(monkeypatch):
    for text, cap in (("", None), ("10G", 10**10), ("512MiB", 2**29)):
        monkeypatch.setenv("LOCKCACHE_MAX_SIZE", text)
        assert configured_cap() == cap
    for text in ("10", "ten", "-1"):
        monkeypatch.setenv("LOCKCACHE_MAX_SIZE", text)
        with pytest.raises(ValueError, match=rf"^LOCKCACHE_MAX_SIZE: '{text}'"):
            configured_cap()


class OfBytes:
    def __fspath__(self):
        return b"/a"


@pytest.mark.parametrize(
    "name, given, error",
    [
        *(("path", given, TypeError) for given in (5, b"/a", ["/a"], OfBytes(), True)),
        *(("path", given, ValueError) for given in ("", "a\0b", "\0")),
        *(("group", given, TypeError) for given in (5, b"kernels", ["kernels"])),
        *(("group", given, ValueError) for given in ("", "a\0b")),
    ],
)
def test_a_path_or_group_that_cannot_be_is_an_error_that_names_and_shows_it(tmp_path, name, given, error):
    said = r"must be .* got" if error is TypeError else "must not"
    with pytest.raises(error, match=f"{name} {said}"):
        FileStreamProgramCache(**{"path": tmp_path / "x", name: given})


@pytest.mark.parametrize(
    "given, meant",
    [(True, True), (False, False), ("kernels", "kernels"), ("54", "54"), ("yes", True), ("NO", False), ("0", "0")],
)
def test_a_group_is_a_yes_a_no_or_a_name(given, meant):
    assert coerce_group(given) == meant


@pytest.mark.parametrize(
    "setting, meant", [(None, False), ("", False), ("0", False), ("1", True), ("kernels", "kernels")]
)
def test_without_a_group_the_environment_says(monkeypatch, setting, meant):
    monkeypatch.delenv("LOCKCACHE_GROUP", raising=False)
    if setting is not None:
        monkeypatch.setenv("LOCKCACHE_GROUP", setting)
    assert coerce_group(None) == meant


@pytest.mark.parametrize("copied", [os.environ.copy, dict, None])
def test_a_variable_counts_from_when_it_is_set_until_it_is_not(monkeypatch, copied):
    if copied is not None:
        monkeypatch.setattr(os, "environ", copied() if copied is not dict else dict(os.environ))
    for text in ("one", "", "two"):
        with monkeypatch.context() as patch:
            patch.setitem(os.environ, "LOCKCACHE_REMOTE", text)
            assert arguments.configured_text("LOCKCACHE_REMOTE") == text
        assert arguments.configured_text("LOCKCACHE_REMOTE") == ""


def test_compile_once_and_its_patience_come_from_variables_below_arguments(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKCACHE_COMPILE_ONCE", "1")
    monkeypatch.setenv("LOCKCACHE_LEASE_TIMEOUT", "5m")
    assert (coerce_compile_once(None), coerce_lease_timeout(None)) == (True, 300.0)
    assert (coerce_compile_once(False), coerce_lease_timeout(2)) == (False, 2.0)
    with FileStreamProgramCache(tmp_path / "cache") as cache, pickle.loads(pickle.dumps(cache)) as copy:
        assert copy._arguments["compile_once"] is True
        assert copy._arguments["lease_timeout_seconds"] == 300.0
    monkeypatch.setenv("LOCKCACHE_LEASE_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="LOCKCACHE_LEASE_TIMEOUT: 'soon'"):
        FileStreamProgramCache(tmp_path / "cache")
