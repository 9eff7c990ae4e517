# SPDX-License-Identifier: Apache-2.0
"""lockcache.cuda.Program and the driver, which is asked on hits of PTX: a stand-in, as a driver of any version."""

from __future__ import annotations

import warnings

import pytest

pytestmark = pytest.mark.cuda

cuda_core = pytest.importorskip("cuda.core")

from lockcache import InMemoryProgramCache  # noqa: E402
from lockcache.cuda import Program  # noqa: E402
from tests.cuda.programs import NVVM, PLAIN, options  # noqa: E402


class Driver:
    """Answers in the place of the driver, as one of any version; counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version, self.asked = (999, 0, 0), 0
        monkeypatch.setattr(cuda_core._program, "driver_version", self)

    def __call__(self) -> tuple[int, int, int]:
        self.asked += 1
        return self.version


def compile_caught(kind: type, cache: object, target: str = "ptx", **more: object) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind(PLAIN, "c++", options(**more)).compile(target, cache=cache)
    return caught


@pytest.mark.parametrize("kind", [cuda_core.Program, Program], ids=["cuda.core", "lockcache"])
def test_ptx_that_the_driver_is_too_old_for_is_a_warning_whether_it_is_compiled_or_a_hit(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, driver = InMemoryProgramCache(), Driver(monkeypatch)
    assert compile_caught(kind, cache) == compile_caught(kind, cache) == []
    driver.version = (0, 0, 0)
    for times in (cache, InMemoryProgramCache()):
        [caught] = compile_caught(kind, times)
        assert caught.category is RuntimeWarning
        assert str(caught.message).startswith("The CUDA driver version is older than the backend version")
        assert kind is not Program or times is not cache or caught.filename == __file__
    assert cache.stats().hits == 2


def test_a_driver_is_asked_for_ptx_of_nvrtc_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    cache = InMemoryProgramCache()
    for _ in range(2):
        compile_caught(Program, cache, "cubin")
        compile_caught(Program, cache, "ltoir", link_time_optimization=True)
        Program(NVVM, "nvvm", options()).compile("ptx", cache=cache)
    assert (driver.asked, cache.stats().hits) == (0, 3)


def test_without_a_driver_a_hit_of_ptx_is_returned_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that only passes code on, where cuda.core's own hit raises that there is no driver."""
    cache = InMemoryProgramCache()
    with monkeypatch.context() as patch:
        Driver(patch)
        compile_caught(Program, cache)

    def missing() -> None:
        raise RuntimeError("no driver here")

    monkeypatch.setattr(cuda_core._program, "_can_load_generated_ptx", missing)
    assert compile_caught(Program, cache) == []
    assert cache.stats().hits == 1
