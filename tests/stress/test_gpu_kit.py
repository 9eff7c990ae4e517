"""The GPU kit as a user runs it where there is no GPU, and what it says of faults that are planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.gpu_kit import Found, eviction, first_hit, member, rows, symbols, timing
from lockcache_stress.experiments.gpu_kit.frameworks import inductor_row, kernels as framework, rows as running
from lockcache_stress.experiments.gpu_kit.frameworks.kernels import ELEMENTS, KERNELS, Framework, expected
from lockcache_stress.experiments.gpu_kit.frameworks.user import Use, Used, _use_until
from lockcache_stress.experiments.gpu_kit.member import Answer, Crowd
from lockcache_stress.experiments.gpu_kit.plan import Kit, KitOptions, NotRunError, Row
from lockcache_stress.experiments.gpu_kit.rows import run_rows
from lockcache_stress.gpu.kernels import LAUNCHED, make_pairs, make_templates
from lockcache_stress.run.daemons import DaemonProcess
from tests.stress.reports import Page, assert_is_junit
from tests.stress.support import environment, failed_checks

_REPOSITORY = Path(__file__).parents[2]
_ROWS = ["nvrtc", "templates", "lto-ir", "cold-start", "eviction", "timing", "first-hit"]
_SHARED = ["cupy", "triton", "jax", "numba-cuda", "cute", "cutile", "inductor"]
_FRAMEWORKS = ["cupy", "triton", "jax", *(f"{name}-shared" for name in _SHARED)]
_OPTIONS = KitOptions(seconds=1.0, processes=2, seed=3)


def run_kit(run_path: Path, *words: str, code: int = 0, timeout: float = 110) -> dict[str, Any]:
    """Run it from the checkout, with no GPU and no console script in sight; what it left as JSON."""
    command = [sys.executable, "-m", "lockcache_stress", "gpu", *words, "--out", str(run_path / "out")]
    given = environment(run_path) | {"PYTHONPATH": ".:daemon:stress", "PATH": "/nowhere", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        command, env=given, cwd=_REPOSITORY, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert os.listdir(run_path) == ["out"]
    found: dict[str, Any] = json.loads((run_path / "out" / "gpu.json").read_text())
    return found


def by_name(report: dict[str, Any]) -> dict[str, Any]:
    return {row["row"]: row for row in report["rows"]}


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.timeout(300)
def test_without_a_gpu_all_but_the_launches_is_done_from_a_checkout(run_path: Path) -> None:
    # Twenty seconds of a core, whatever is asked for: to load NVRTC takes one in each process, and all rows have some.
    report = run_kit(run_path, "--seconds", "0.5", "--processes", "1", "--seed", "1", timeout=280)
    done = by_name(report)
    assert (report["ok"], report["gpu"], report["machine"]["GPU"]) == (True, False, "none")
    assert [*done][: len(_ROWS)] == _ROWS
    assert {*done, *report["not_run"]} == {*_ROWS, *_FRAMEWORKS}
    assert all((row["launches"], row["wrong"]) == (None, 0) for row in done.values())
    assert (done["templates"]["compiles"], done["lto-ir"]["compiles"]) == (4, 6)
    assert done["timing"]["outcome"]["ratio"] > 1
    assert (done["first-hit"]["compiles"], done["first-hit"]["outcome"]["hits"]) == (8, 6)
    printed = (run_path / "out" / "gpu.txt").read_text()
    assert all(name in printed for name in [*_ROWS, *_FRAMEWORKS])
    assert "no GPU: nothing was launched" in printed
    page = Page((run_path / "out" / "gpu.html").read_text())
    assert page.outcome["machine"]["cuda-core"] == report["machine"]["cuda-core"] != "not installed"
    document = ET.parse(run_path / "out" / "gpu.xml").getroot()
    assert_is_junit(document)
    assert {str(suite.get("name")).partition(":")[0] for suite in document} == {*_ROWS, *_FRAMEWORKS}


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.parametrize(
    "row, fault, failed",
    [
        ("templates", "mapping", "wrong mappings, bytes or results"),
        ("nvrtc", "torn", "torn"),
    ],
)
def test_a_planted_fault_is_exit_code_1_and_said_in_its_row(row: str, fault: str, failed: str, run_path: Path) -> None:
    report = run_kit(run_path, row, "--plant", fault, "--seconds", "1", "--processes", "2", "--seed", "1", code=1)
    [found] = report["rows"]
    assert failed in failed_checks(found["outcome"])
    assert found["wrong"] > 0
    assert not report["ok"]
    assert report["replay"][-2:] == ["--plant", fault]
    assert "NO" in (run_path / "out" / "gpu.txt").read_text()


@pytest.mark.parametrize(
    "version, gpu_arch, reason",
    [
        (None, "sm_90", "CuPy is not installed"),
        ("11.6.0", "sm_90", "CuPy 11.6.0 is too old: 12.0 is needed"),
        ("14.2.0", None, "no GPU"),
        ("14.2.0", "sm_90", None),
    ],
)
def test_a_framework_that_cannot_be_used_is_said(
    version: str | None, gpu_arch: str | None, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framework, "find_version", lambda name: version)
    cupy = Framework("CuPy", "files", ("json",), (12, 0), True, lambda directory: _Kernels())
    assert cupy.why_not(gpu_arch) == reason


def test_a_row_that_breaks_has_failed_and_one_that_finds_nothing_to_run_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(kit: Kit) -> Found:
        raise UnusableError("lockcache-daemon did not start")

    def not_run(kit: Kit) -> Found:
        raise NotRunError("JAX could not be used: no CPU")

    made = {
        "jax": Row("jax", "", 1, not_run, lambda arch: None),
        "nvrtc": Row("nvrtc", "", 1, broken, lambda arch: None),
    }
    monkeypatch.setattr(rows, "ROWS", made)
    skipped: list[tuple[str, str]] = []
    [found] = run_rows(_OPTIONS, skipped, lambda *_: None)
    assert skipped == [("jax", "JAX could not be used: no CPU")]
    assert (found.row, found.outcome.ok) == ("nvrtc", False)
    assert "lockcache-daemon did not start" in found.did


class _Kernels:
    """In the place of a framework: of its first kernel it computes one number wrong, and its second raises."""

    place = "the GPU"

    def forget(self) -> None: ...

    def run(self, number: int) -> list[int]:
        if number == 1:
            raise FileNotFoundError("it was evicted")
        return [int(number == 0), *expected(number)[1:]]


_FAKE = Framework("Fake", "files", (), (0, 0), True, lambda directory: _Kernels())


def test_wrong_numbers_and_errors_of_a_framework_are_counted_and_fail_its_row() -> None:
    used = _use_until(_Kernels(), Use(_FAKE, "", 0.2, 1), 0)
    assert used.wrong > 0
    assert used.raised == Counter(FileNotFoundError=used.raised["FileNotFoundError"])
    assert _failed(used, _FAKE) == {"wrong results", "errors raised", "errors"}
    known = Framework("Fake", "files", (), (0, 0), True, _FAKE.open, ("FileNotFoundError",))
    assert _failed(used, known) == {"wrong results", "errors"}
    right = Used(uses=9, place="the GPU")
    assert _failed(right, _FAKE) == set()
    assert _failed(right, _FAKE, final=11) == {"final over cap"}


def _failed(used: Used, fake: Framework, final: int = 10) -> set[str]:
    daemon = DaemonProcess("", "", 10)
    daemon.result = {"evicted_entries": 5, "complaints": []}
    bytes_ = {"cap": 10, "filled": 20, "peak": 12, "final": final}
    found = running._find(fake, Kit(_OPTIONS, "sm_90", 1.0, lambda *_: None), [used], bytes_, daemon, [])
    assert (found.launches, found.wrong) == (used.uses, used.wrong)
    return {check.name for check in found.outcome.checks() if not check.ok}


class _WrongLauncher:
    """In the place of a GPU: loads everything and computes nothing right."""

    def load(self, code: Any, name: str) -> str:
        return name

    def run(self, kernel: str) -> list[int]:
        return [0] * LAUNCHED


@pytest.mark.cuda
@pytest.mark.parametrize(
    "work, phase, launches",
    [
        (symbols._get_by_name, 1, 12),
        (symbols._link_all, 1, 3),
        (eviction._work, 0, 8),
        (timing._work, 0, 12),
        (first_hit._work, 0, 2),
    ],
)
def test_what_a_gpu_computes_wrong_is_counted_at_every_launch(
    work: Any, phase: int, launches: int, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "Launcher", _WrongLauncher)
    task = member.Task(work, str(run_path), "sm_90", True, 0.0, 1, None, "token")
    alone = member.Member(task, 0)
    work(alone, phase)
    assert (alone.answer.counts["launches"], alone.answer.counts["wrong"]) == (launches, launches)
    assert "computed other numbers" in alone.answer.findings[0]


def _inductor(phase: inductor_row._Phase, **changed: Any) -> dict[str, Any]:
    """Returns the answer of one process of a phase, all of which is as it must be but for what is ``changed``."""
    state = "hit" if phase == inductor_row._NEW_NODES else "miss"
    counters = {f"fxgraph_cache_{state}": 2, f"autograd_cache_{state}": 1}
    seconds = 1.0 if state == "hit" else 9.0
    return {"first_step_seconds": seconds, "losses": [3.5, 3.25], "counters": counters, **changed}


@pytest.mark.parametrize(
    "phase, changed, failed",
    [
        (inductor_row._NEW_NODES, {}, set()),
        (inductor_row._OWN_WARM, {"losses": [3.5, 3.5]}, {"wrong losses"}),
        (
            inductor_row._NEW_NODES,
            {"counters": {"fxgraph_cache_hit": 1, "fxgraph_cache_miss": 1}},
            {"graphs that new nodes compiled"},
        ),
        (inductor_row._NEW_NODES, {"first_step_seconds": 9.5}, {"cold over new nodes"}),
        (inductor_row._SHARED_COLD, {"error": "it died"}, {"processes that ended well", "errors"}),
    ],
)
def test_what_torch_compile_does_wrong_on_a_new_node_fails_its_row(
    phase: inductor_row._Phase, changed: dict[str, Any], failed: set[str]
) -> None:
    kit = Kit(_OPTIONS, "sm_90", 1.0, lambda *_: None)
    answers = {each: [_inductor(each, **(changed if each == phase else {}))] for each in inductor_row._PHASES}
    found = inductor_row._judge(kit, answers, 1, "cuda")
    assert {check.name for check in found.outcome.checks() if not check.ok} == failed


def test_processes_that_found_different_bytes_are_wrong() -> None:
    crowd = Crowd(Kit(_OPTIONS, None, 1.0, lambda *_: None), 2)
    crowd.answers = [
        [Answer(digests={"pair 0": "a"}), Answer(digests={"pair 0": "a"})],
        [Answer(digests={"pair 0": "b"})],
    ]
    assert crowd.distinct() == {"pair 0": 2}
    assert crowd.wrong == 1


def test_no_two_programs_of_the_kit_compute_the_same() -> None:
    templates, pairs = make_templates(4, 1, "token"), make_pairs(3, 1, "token")
    results = [template.expected(name) for template in templates for name in template.names]
    results += [pair.expected() for pair in pairs]
    results += [expected(number) for number in range(KERNELS)]
    assert len(set(map(tuple, results))) == len(results) == 4 * 3 + 3 + KERNELS
    assert {len(result) for result in results} == {ELEMENTS}
