"""The error tree."""

from __future__ import annotations

import pickle

import pytest

from lockcache import errors
from lockcache.errors import (
    ArchiveError,
    FormatError,
    LockcacheError,
    LockTimeoutError,
    PolicyError,
    ReentrantComputeError,
    SigningKeyError,
    UncacheableError,
    UnsafeCacheDirError,
)

BASES = {
    ArchiveError: ValueError,
    UnsafeCacheDirError: PermissionError,
    FormatError: OSError,
    SigningKeyError: ValueError,
    PolicyError: ValueError,
    LockTimeoutError: TimeoutError,
    ReentrantComputeError: RuntimeError,
    UncacheableError: ValueError,
}
OF_A_PATH = [UnsafeCacheDirError, FormatError, SigningKeyError, PolicyError, LockTimeoutError]


def test_every_error_has_one_root_and_keeps_a_built_in_base():
    public = {getattr(errors, name) for name in errors.__all__}
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
