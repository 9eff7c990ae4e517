# SPDX-License-Identifier: Apache-2.0
"""Inductor on lockcache, with the oldest torch that is tried, the newest, and one between: nodes, herds, ranks."""

from __future__ import annotations

import functools
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.frameworks.support import HANG_SECONDS, PROGRAMS, ROOT, Programs, answer, site_of, tell, total

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


VENVS = ["inductor-oldest", "inductor-2.13", "inductor"]


@pytest.fixture(params=VENVS)
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Programs:
    return Programs(request.param, tmp_path)


@pytest.fixture
def compilers(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Returns the variables with which a node has a C++ compiler of its own name that lists what it compiles."""

    def variables(node: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        if not folder.exists():
            folder.mkdir()
            compiler = folder / "g++"
            compiler.write_text(f'#!/bin/sh\necho "$*" >> "$COMPILED_BY_NODE"\nexec {shutil.which("g++")} "$@"\n')
            compiler.chmod(0o755)
        return {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "COMPILED_BY_NODE": str(tmp_path / f"{node}.compiled"),
            "TMPDIR": str(_folder(tmp_path / f"tmp-{node}")),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / node),
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",  # as torch has it from 2.8 on
            "LOCKCACHE_LEASE_TIMEOUT": "1h",
        }

    return variables


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def _compiled_by(tmp_path: Path, node: str) -> list[str]:
    """Returns what the C++ compiler of a node compiled: the targets, not what it was asked about itself."""
    lines = (tmp_path / f"{node}.compiled").read_text().splitlines()
    return [line.partition(" -o ")[2].split()[0] for line in lines if " -o " in line]


def _with_triton(programs: Programs) -> dict[str, str]:
    """Returns the variable by which a program finds Triton, which no torch for the CPU brings."""
    is_oldest = "inductor-oldest" in programs.python.parts
    return {"PYTHONPATH": str(ROOT) if is_oldest else f"{ROOT}{os.pathsep}{site_of('triton')}"}


def _run_under_lockcache(programs: Programs, program: str, *words: str, **variables: str) -> str:
    """Returns the output of a program without a line of lockcache."""
    command = [sys.executable, "-m", "lockcache", "run", "-q", "--", programs.python, PROGRAMS / f"{program}.py"]
    command += words
    environment = programs.environment(variables)
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout


def test_on_another_node_all_graphs_are_hits_forward_and_backward(programs: Programs, tmp_path: Path) -> None:
    found = [
        json.loads(
            _run_under_lockcache(
                programs,
                "inductor_node",
                TORCHINDUCTOR_AUTOGRAD_CACHE="1",  # as torch has it from 2.8 on
                TORCHINDUCTOR_CACHE_DIR=str(tmp_path / node),
            )
        )
        for node in ("first", "second")
    ]
    assert (found[0]["fxgraph_cache_miss"], found[0]["autograd_cache_miss"]) == (4, 2)
    assert found[1] == {"fxgraph_cache_hit": 4, "autograd_cache_hit": 2}


def test_where_torch_stores_nothing_of_autograd_lockcache_does_not_either(programs: Programs, tmp_path: Path) -> None:
    for node, state in (("first", "miss"), ("second", "hit")):
        variables = {"TORCHINDUCTOR_AUTOGRAD_CACHE": "0", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / node)}
        assert json.loads(_run_under_lockcache(programs, "inductor_node", **variables)) == {f"fxgraph_cache_{state}": 4}


def test_a_herd_of_the_oldest_torch_compiles_each_graph_once(tmp_path: Path) -> None:
    programs = Programs("inductor-oldest", tmp_path)
    for compiled in (2, 0):
        answers = programs.run(3, range(2))
        assert [(found["wrong"], found["failed"], found["is_installed"]) for found in answers] == [(0, 0, True)] * 3
        assert total(answers, "compiled") == compiled


def test_on_another_node_no_cpp_compiler_runs_and_every_entry_says_what_it_cost(
    programs: Programs, tmp_path: Path, compilers: Callable[[str], dict[str, str]]
) -> None:
    """Neither for the kernels, nor for a header, nor to find out which vector instructions there are."""
    first, second = (
        json.loads(_run_under_lockcache(programs, "inductor_kernels", **compilers(node)))
        for node in ("first", "second")
    )
    tries = first.pop("tries")
    stored_tries = 0 if first["tries_again"] else tries
    said = {name: first[name] for name in ("gradient", "tries_again")}
    assert tries > 0
    assert second.pop("tries") == tries - stored_tries  # an old torch has each process try all of them
    assert first == {"fxgraph_cache_miss": 2, "autograd_cache_miss": 1, **said}
    assert second == {"fxgraph_cache_hit": 2, "autograd_cache_hit": 1, **said}
    assert len(_compiled_by(tmp_path, "first")) >= 3
    assert _compiled_by(tmp_path, "second") == []

    built = [path for path in (tmp_path / "second").rglob("*") if path.suffix in (".so", ".o")]
    assert {path.stat().st_mode & 0o777 for path in built} == {0o755}
    entries = [path.read_bytes() for path in (programs.directory / "entries").rglob("*") if path.is_file()]
    assert len(entries) == len(built) + 3 + stored_tries
    assert not any(b'"data": "gA' in entry for entry in entries), "a pickle in base64"
    command = [sys.executable, "-m", "lockcache", "ls", "--json", programs.directory]
    listed = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines()]
    assert len(listed) == len(entries)
    assert all(entry["cost_ns"] > 0 for entry in listed), listed


def test_a_trial_that_is_found_and_cannot_be_loaded_here_is_tried_as_without_lockcache(
    tmp_path: Path, compilers: Callable[[str], dict[str, str]]
) -> None:
    programs = Programs("inductor", tmp_path)
    run = functools.partial(_run_under_lockcache, programs, "inductor_kernels")
    first = json.loads(run(**compilers("first")))
    second = json.loads(run("nothing-loads", **compilers("second")))
    assert second["tries"] == first["tries"] > 0
    assert second["gradient"] == first["gradient"]


def test_a_herd_builds_each_cpp_kernel_once(
    programs: Programs, tmp_path: Path, compilers: Callable[[str], dict[str, str]]
) -> None:
    nodes = [f"node-{number}" for number in range(3)]
    with ThreadPoolExecutor() as pool:
        run = functools.partial(_run_under_lockcache, programs, "inductor_kernels")
        found = [*pool.map(lambda node: json.loads(run(**compilers(node))), nodes)]
    assert len({each["gradient"] for each in found}) == 1
    assert sum(each.get("fxgraph_cache_miss", 0) for each in found) == 2
    built = [os.path.basename(target) for node in nodes for target in _compiled_by(tmp_path, node)]
    libraries = sorted(name for name in built if name.endswith((".so", ".o")))
    assert libraries
    assert libraries == sorted({*libraries})


def test_where_a_cpp_kernel_does_not_compile_each_process_has_its_own_error(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    folder = _folder(tmp_path / "bin")
    (folder / "g++").write_text(
        '#!/bin/sh\ncase "$*" in *" -o "*) echo a broken compiler >&2; exit 1;; esac\nexec /usr/bin/g++ "$@"\n'
    )
    (folder / "g++").chmod(0o755)
    variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "LOCKCACHE_LEASE_TIMEOUT": "1h"}
    for answer_ in programs.run(3, [0], "with-kernel", "keep-errors", **variables):
        assert (answer_["failed"], answer_["is_installed"]) == (1, True)
        assert "a broken compiler" in answer_["error"] or "CppCompileError" in answer_["error"]


def test_where_the_builder_of_cpp_has_changed_all_else_is_shared(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    for compiled in (2, 0):
        [found] = programs.run(1, range(2), "old-builder")
        assert (found["wrong"], found["failed"], found["compiled"], found["is_installed"]) == (0, 0, compiled, True)
    lines = [line for line in programs.errors.read_text().splitlines() if "C++" in line]
    assert len(lines) == 2
    assert all("get_compiler_version_info" in line for line in lines)


@pytest.mark.parametrize("venv", [name for name in VENVS if name != "inductor-oldest"])  # 2.6 has none
@pytest.mark.parametrize("way", ["aot", "parts"])
def test_a_graph_that_is_compiled_as_vllm_does_is_compiled_once(way: str, venv: str, tmp_path: Path) -> None:
    programs = Programs(venv, tmp_path)
    variables = {"program": "inductor_standalone", "LOCKCACHE_LEASE_TIMEOUT": "1h"}
    for compiled in (2, 0):
        answers = programs.run(3, range(2), way, **variables)
        assert [(found["wrong"], found["failed"], found["is_installed"]) for found in answers] == [(0, 0, True)] * 3
        assert total(answers, "compiled") == compiled


def test_where_a_bundle_cannot_be_compiled_nobody_waits_for_it(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    variables = {"program": "inductor_standalone", "LOCKCACHE_LEASE_TIMEOUT": "1h"}
    answers = programs.run(3, [0], "aot", "fails", "keep-errors", **variables)
    assert [(found["failed"], found["compiled"]) for found in answers] == [(1, 1)] * 3


def test_a_job_compiles_for_all_sizes_on_a_node_that_did_not_see_them(programs: Programs, tmp_path: Path) -> None:
    found = []
    for node, job in (("first", "a"), ("second", "a"), ("third", "b")):
        variables = {"TORCH_COMPILE_JOB_ID": job, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / node)}
        found.append(int(_run_under_lockcache(programs, "inductor_profile", **variables)))
    assert found == [2, 1, 2]


@pytest.mark.parametrize("venv", [name for name in VENVS if name != "inductor-oldest"])  # 2.6 has none
def test_the_artifacts_of_a_program_are_one_entry_which_leaves_in_a_bundle(venv: str, tmp_path: Path) -> None:
    programs, artifacts, bundle = Programs(venv, tmp_path), tmp_path / "artifacts", tmp_path / "artifacts.lcb"

    def found(node: str, directory: Path, **variables: str) -> dict[str, int]:
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / node)
        said: dict[str, int] = json.loads(
            programs.call(str(PROGRAMS / "inductor_artifacts.py"), str(directory), **variables)
        )
        return said

    assert found("first", artifacts) == {"fxgraph_cache_miss": 1}
    assert found("second", artifacts) == {"fxgraph_cache_hit": 1}
    subprocess.run([sys.executable, "-m", "lockcache", "bundle", "make", "-o", bundle, artifacts], check=True)
    assert found("third", tmp_path / "elsewhere", LOCKCACHE_SEED=str(bundle)) == {"fxgraph_cache_hit": 1}


def test_a_compile_worker_has_the_adapters_too(programs: Programs, tmp_path: Path) -> None:
    variables = {**_with_triton(programs), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    parent, worker = json.loads(_run_under_lockcache(programs, "inductor_workers", **variables))
    assert parent == {"hooks": 1, "adapters": ["inductor", "triton"]}
    assert worker == {"hooks": 1, "adapters": ["triton"]}


@pytest.mark.parametrize("is_of_worker", [False, True], ids=["here", "of-a-worker"])
def test_what_one_process_tuned_another_one_with_the_same_gpu_reads(
    is_of_worker: bool, programs: Programs, tmp_path: Path
) -> None:
    """Also where a compile worker, which has no adapter of Inductor's, made the object that stores it.

    There is no GPU to tune for, so the program calls Inductor's classes itself, and says what the GPU is called.
    """
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for node in (first, second, third):
        node.mkdir()

    def call(*steps: str) -> list[str]:
        variables = _with_triton(programs)
        return programs.call(str(PROGRAMS / "inductor_tuned.py"), *steps, **variables).splitlines()

    if is_of_worker:
        call(f"pickle={first}=H100")
    assert call(f"read={second}=H100", f"save={first}=H100") == ["None"]
    # In the end lockcache fails: Inductor's own file comes first, and nothing raises.
    found = call(
        f"read={second}=H100",
        f"read={third}=H200",
        f"read={first}=broken",
        f"read={third}=broken",
        f"save={third}=broken",
        f"read={third}=broken",
    )
    assert found == ["4", "None", "4", "None", "4"]


def test_ranks_that_talk_to_each_other_while_they_compile_do_not_wait_for_each_other(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    for compiled in (2, 0):
        variables = {"RANKS_MEET_AT": f"file://{tmp_path}/meeting-{compiled}", "LOCKCACHE_LEASE_TIMEOUT": "1h"}
        with programs.started_each([{**variables, "RANK": str(rank)} for rank in range(2)]) as running:
            for process in running:
                tell(process, range(2))
            for process in running:
                assert select.select([process.stdout], [], [], HANG_SECONDS / 2)[0], "a rank waits for the other one"
            found = [answer(process) for process in running]
        assert [(each["wrong"], each["failed"], each["compiled"]) for each in found] == [(0, 0, compiled)] * 2


def test_ranks_that_would_hang_after_a_partial_hit_look_up_nothing(tmp_path: Path) -> None:
    """Torch says so of ranks that agree on what to recompute, and not on hits and misses."""
    programs = Programs("inductor", tmp_path)
    for run in range(2):
        variables = {"RANKS_MEET_AT": f"file://{tmp_path}/meeting-{run}", "RANKS_AGREE": "1"}
        with programs.started_each([{**variables, "RANK": str(rank)} for rank in range(2)]) as running:
            for process in running:
                tell(process, range(2))
            found = [answer(process) for process in running]
        assert [(each["wrong"], each["failed"], each["compiled"]) for each in found] == [(0, 0, 2)] * 2


def test_a_backward_graph_which_another_thread_compiles_is_found_too(tmp_path: Path) -> None:
    programs = Programs("inductor", tmp_path)
    for compiled in (4, 0):
        [found] = programs.run(1, range(2), "with-gradient")
        assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, compiled)
