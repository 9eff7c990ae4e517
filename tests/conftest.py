# SPDX-License-Identifier: Apache-2.0
"""Fixtures of every test: a path for a cache, a real file system of its own, skips for what the machine lacks."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from lockcache.explain import statements
from lockcache.filestream.disk import space
from tests import progress
from tests.durations import pytest_terminal_summary
from tests.programs import SPACE_ON
from tests.progress import pytest_addoption

__all__ = ["pytest_addoption", "pytest_terminal_summary"]

_CAP_SYS_ADMIN = 21

# More examples for hypothesis: `make properties`, or `pytest --hypothesis-profile=nightly`.
settings.register_profile("nightly", max_examples=2000)
# A tenth of hypothesis's default, for `make quick`.
settings.register_profile("quick", max_examples=10)


@pytest.hookimpl(trylast=True)  # after pytest's own reporter is there
def pytest_configure(config: pytest.Config) -> None:
    progress.pytest_configure(config)
    # A shell starts background jobs with SIGINT ignored, nohup with SIGHUP ignored, and many CI systems do the same.
    # The processes that tests start would inherit this, and some tests send these signals.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which takes 40 % of it, in each worker, and frees nothing.

    Whatever is there then stays to the end: a collection by a test need not look at it, nor a forked child copy it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {
        "cuda": None if importlib.util.find_spec("cuda") else "needs cuda.core and NVRTC: pip install lockcache[cuda]",
        "gpu": None if os.path.exists("/dev/nvidiactl") else "needs a GPU",
        "root": None if _may_mount() else "needs root, to mount file systems",
    }
    for item in items:
        for name, reason in reasons.items():
            if reason is not None and item.get_closest_marker(name) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def _may_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    # In a container root often lacks the capability to mount.
    [effective] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:")]
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


@pytest.fixture(scope="session", autouse=True)
def _blocks_of_a_byte() -> Iterator[None]:
    """Have directories that tests make in this process count in bytes, so that the sums in tests are easy to read.

    A directory states how it counts, for all processes that use it. Tests of the space on a disk ask for
    :func:`real_blocks`; directories that other processes make count in blocks in any case.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "_space_on", lambda mount, fragment_bytes: space.Space(1))
        yield


@pytest.fixture(autouse=True)
def _nothing_stated() -> Iterator[None]:
    """Start each test without statements about keys, because an entry is larger by the statement about its key."""
    kept = [(remembered, dict(remembered)) for remembered in (statements._stated, statements._digested)]
    for remembered, _ in kept:
        remembered.clear()
    yield
    for remembered, before in kept:
        remembered.clear()
        remembered.update(before)


@pytest.fixture
def real_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have directories count as their file system does."""
    monkeypatch.setattr(space, "_space_on", SPACE_ON)


@pytest.fixture
def cache_path(tmp_path: Path) -> Path:
    """A path for a cache directory, which does not exist yet."""
    return tmp_path / "cache"


@pytest.fixture
def mount_tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with the given options (``size=8m``). Returns its path. For tests marked ``root``."""
    from lockcache_stress.trouble import mounted_tmpfs

    with contextlib.ExitStack() as stack:

        def mount(options: str) -> Path:
            path = Path(tempfile.mkdtemp(prefix="tmpfs", dir=tmp_path))
            assert stack.enter_context(mounted_tmpfs(str(path), options.removeprefix("size=")))
            return path

        yield mount


@pytest.fixture
def mount_image(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes a file system in an image file and mounts it by loop: ``mount_image("ext4", 64, "-b", "1024")``."""
    from lockcache_stress.trouble import mounted_image

    with contextlib.ExitStack() as stack:

        def mount(kind: str, size_mib: int, *mkfs_options: str) -> Path:
            if shutil.which(f"mkfs.{kind}") is None:
                pytest.skip(f"needs mkfs.{kind}")
            path = Path(tempfile.mkdtemp(prefix=kind, dir=tmp_path))
            stack.enter_context(mounted_image(str(path), kind, size_mib, *mkfs_options))
            return path

        yield mount


@pytest.fixture
def in_directory() -> Callable[[Path], contextlib.AbstractContextManager[None]]:
    """Changes the working directory for a ``with`` block."""

    @contextlib.contextmanager
    def change(path: Path) -> Iterator[None]:
        before = os.getcwd()
        os.chdir(path)
        try:
            yield
        finally:
            os.chdir(before)

    return change
