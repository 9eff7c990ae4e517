# SPDX-License-Identifier: Apache-2.0
"""Fixtures of this suite: ``cache`` and friends are lockcache's, ``dropin`` and friends also cuda.core's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.backends import BACK_ENDS, SERVER, UPSTREAM, BackEnd, endless_patience
from tests.in_memory import run_path, tmp_path
from tests.matrix_sampling import EXHAUSTIVE
from tests.remote.servers import valkey

__all__ = ["run_path", "tmp_path"]  # what is written is in memory

#: Variants of the file back end and of tiers. They differ in how a record is stored and found, or in what the tier in
#: front answers, and share all other code; one variant is enough for the tests of that code.
_VARIANTS = {
    *("filestream-record-files", "filestream-signed", "filestream-network", "filestream-seeded", "filestream-remote"),
}
_ALIKE = {
    *("test_calling", "test_copies", "test_cuda_core", "test_files", "test_mapping", "test_sealed", "test_stats"),
    *("test_switches", "test_threads"),
}
_VARIANTS_OF_TIERS = {"tiered-rechecking", "tiered-golden", "tiered-remote"}
_ALIKE_IN_TIERS = {
    "test_calling",
    "test_cuda_core",
    "test_files",
    "test_sealed",
    "test_turns",
    "test_waits",
    "test_failures",
}
#: Who waits for whom is the last tier's, and is decided before a record is looked for.
_VARIANTS_OF_RECORDS = {"filestream-record-files", "filestream-signed", "filestream-seeded"}
_ALIKE_IN_RECORDS = {"test_turns", "test_waits", "test_failures"}

_OURS = [pytest.param(back_end, id=back_end.name) for back_end in BACK_ENDS]
_UPSTREAM = [pytest.param(back_end, id=back_end.name, marks=pytest.mark.cuda) for back_end in UPSTREAM]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    alike: dict[Path, set[str]] = {}
    for variants, modules in (
        (_VARIANTS, _ALIKE),
        (_VARIANTS_OF_TIERS, _ALIKE_IN_TIERS),
        (_VARIANTS_OF_RECORDS, _ALIKE_IN_RECORDS),
    ):
        for module in modules:
            alike.setdefault(folder / f"{module}.py", set()).update(variants)
    for item in items:
        if names := alike.get(item.path):
            given = item.callspec.params if hasattr(item, "callspec") else {}
            if {str(each) for each in given.values() if isinstance(each, BackEnd)} & names:
                item.add_marker(EXHAUSTIVE)


@pytest.fixture(params=_OURS)
def back_end(request: pytest.FixtureRequest) -> BackEnd:
    if not request.param.has_accounts and request.path.stem == "test_threads":
        pytest.skip("what threads have done is seen in the accounts, which a server does not keep")
    return request.param


@pytest.fixture
def make(request: pytest.FixtureRequest, back_end: BackEnd, cache_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes caches over one store: ``make(max_size_bytes=100)``."""
    yield from _factory(request, back_end, cache_path)


@pytest.fixture
def cache(make: Callable[..., Any]) -> Any:
    """An empty cache without a cap."""
    return make()


@pytest.fixture(params=[*_OURS, *_UPSTREAM])
def dropin_back_end(request: pytest.FixtureRequest) -> BackEnd:
    return request.param


@pytest.fixture
def make_dropin(
    request: pytest.FixtureRequest, dropin_back_end: BackEnd, cache_path: Path
) -> Iterator[Callable[..., Any]]:
    """Makes caches like ``make``, for the promises of cuda.core's own caches too."""
    yield from _factory(request, dropin_back_end, cache_path)


@pytest.fixture
def dropin(make_dropin: Callable[..., Any]) -> Any:
    """A cache like ``cache``, for the promises of cuda.core's own caches too."""
    return make_dropin()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The server for all tests of this process, each of which has a prefix of its own there."""
    with valkey(tmp_path_factory.mktemp("valkey")) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv(SERVER, running.url)
        yield


def _factory(request: pytest.FixtureRequest, back_end: BackEnd, path: Path) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []
    if back_end.has_server:
        request.getfixturevalue("server")

    def make(**arguments: Any) -> Any:
        if "max_size_bytes" in arguments and back_end.has_server:
            pytest.skip("a server keeps what a cap leaves out")
        made.append(back_end.make(path, **arguments))
        return made[-1]

    with endless_patience():
        yield make
        for cache in made:
            cache.close()
