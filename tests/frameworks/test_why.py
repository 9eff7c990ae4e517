# SPDX-License-Identifier: Apache-2.0
"""``lockcache why`` of kernels that real frameworks compiled: what differs is named in the framework's words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.support import ENVIRONMENT, HANG_SECONDS, Programs, answer, tell

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

#: The part in which the programs' kernels 0 and 2 differ, and parts that all keys of the framework have.
DIFFERENT = {
    "cupy": ("code", {"kernels", "compute capability", "NVRTC", "headers", "headers of CuPy"}),
    "cute": ("code", {"function", "target", "option opt-level", "passes"}),
    "cutile": ("code", {"kernel", "compiler version", "sm arch"}),
    # A program that asks Helion's back end as Helion does, without a GPU, and so without a key.
    "helion": ("rest of the key", {"version of helion"}),
    "inductor": ("inputs", {"code", "option is_inference", "torch version", "other options"}),
    "jax": ("code", {"program", "platform", "devices", "compile options", "jaxlib", "instructions of the CPU"}),
    "numba": ("code", {"function", "argument types", "compute capability", "CUDA", "settings"}),
    "triton": ("constant constant", {"code", "argument types", "target", "option num_warps", "files of Triton"}),
    "warp": ("code", {"module", "target", "option mode", "instructions of the CPU"}),
    "flashinfer": ("code", {"steps", "system", "FlashInfer", "compiler", "environment"}),
}


def why(directory: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "lockcache", "why", "--last", "9", "--json", str(directory)]
    found: list[dict[str, Any]] = json.loads(subprocess.run(command, check=True, stdout=-1, text=True).stdout)["misses"]
    return found


def run_to_end(programs: Programs, kernels: list[int], **variables: str) -> dict[str, Any]:
    """Returns the answer of a process that ends by itself, and so reports what it missed."""
    with programs.started(1, **variables) as [process]:
        tell(process, kernels)
        found = answer(process)
        process.stdin.close()
        process.wait(HANG_SECONDS)
    return found


def differing(miss: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the values of the parts in which a miss differs from the nearest entry."""
    return {
        each["part"]: tuple((each[of] or {}).get("value", "") for of in ("mine", "other"))
        for each in miss["nearest"][0]["differences"]
    }


#: Those that are not asked here, each with the reason.
NOT_ASKED = {
    "cpp_extension": "its parts are asked in tests/unit/integrations/test_key_parts.py alone",
    "numba_mlir": "its parts are numba's, by the same function",
    "tilelang": "its cache is a layout of the daemon",
}


def test_every_framework_is_asked() -> None:
    assert DIFFERENT.keys() | NOT_ASKED.keys() == ENVIRONMENT.keys()


@pytest.mark.parametrize("name", DIFFERENT)
def test_why_names_what_differs_in_the_words_of_the_framework(name: str, tmp_path: Path) -> None:
    programs, (part, known) = Programs(name, tmp_path), DIFFERENT[name]
    found = run_to_end(programs, [0, 2], LOCKCACHE_SEALED="warn")
    assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, 2)
    [last, *_] = why(programs.directory)
    assert part in differing(last)
    assert (part == "rest of the key") == ("rest of the key" in differing(last))
    stated = {each["name"]: each["value"] for each in last["parts"]}
    assert stated.keys() >= known
    assert stated["framework"] == name
    assert stated[f"version of {name}"]
    assert str(tmp_path) not in json.dumps(last), "a private path"
    assert f" in {part}: " in programs.errors.read_text(), "the report of the seal"
    assert "parts of a key are not known" not in programs.errors.read_text()
    assert programs.run(1, [0, 2])[0]["compiled"] == 0


def test_what_helion_says_of_a_key_is_stated(tmp_path: Path) -> None:
    """By Helion's own cache and key; without a GPU nothing else can make one."""
    programs = Programs("helion", tmp_path)
    programs.call("-c", HELION, "H100")
    programs.call("-c", HELION, "B200")
    [last, first] = why(programs.directory)
    assert differing(last) == {"hardware": ("B200", "H100")}
    assert {each["name"] for each in first["parts"]} >= {"code", "runtime name", "backend", "extra results"}


HELION = """
import sys
from helion import autotuner
from helion.autotuner.base_cache import LooseAutotuneCacheKey
from lockcache.integrations import helion

assert helion.install()
cache = autotuner.RemoteAutotuneCache.__new__(autotuner.RemoteAutotuneCache)
cache._backend = helion.Backend()
cache.key = LooseAutotuneCacheKey(((4, 4), "cuda"), (), "5f", sys.argv[1], "13.0", "triton")
found = autotuner.local_cache.LocalAutotuneCache.get
autotuner.local_cache.LocalAutotuneCache.get = lambda self: None
assert cache.get() is None
cache._backend.put(cache.key.stable_hash(), "{}")
"""


def test_what_changed_of_a_graph_is_named(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    run_to_end(programs, [1])
    run_to_end(programs, [1], TORCHINDUCTOR_MAX_AUTOTUNE_GEMM="1")
    graphs = [miss for miss in why(programs.directory) if miss["label"] == "an FX graph"]
    assert "option max_autotune_gemm" in differing(graphs[0]) or "other options" in differing(graphs[0])
