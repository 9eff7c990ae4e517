# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress simulate``: the same costs, trace and seed give the same; the real order decides; bounds hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lockcache.filestream.eviction import Ranked
from lockcache_stress.experiments.simulate import (
    ORDERS,
    Program,
    Request,
    load_programs,
    make_trace,
    orders,
    replay,
    standard_traces,
    upper_bound,
)
from tests.stress.support import stress_json
from tests.unit.material import property_test

#: Half of them expensive and small.
PROGRAMS = [Program(f"p{n}", 10**9 if n % 2 else 10**7, 10_000 if n % 2 else 100_000) for n in range(40)]


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"programs": [program._asdict() for program in PROGRAMS]}))
    return path


def simulate(run_path: Path, *words: str) -> dict[str, Any]:
    return stress_json("simulate", "--requests", "1500", *words, run_path=run_path)


@pytest.mark.long
def test_a_run_is_replayed_exactly_by_its_seed_and_by_its_trace(run_path: Path, costs: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    one = simulate(run_path, "--costs", str(costs), "--seed", "3", "--zipf", "0.9", "--save-trace", str(trace))
    again = simulate(run_path, "--costs", str(costs), "--seed", "3", "--zipf", "0.9")
    assert one == again
    from_file = simulate(run_path, "--costs", str(costs), "--trace", str(trace), "--seed", "99")
    assert from_file["traces"][0]["caches"] == one["traces"][0]["caches"]
    other = simulate(run_path, "--costs", str(costs), "--seed", "4", "--zipf", "0.9")
    assert other["traces"][0]["caches"] != one["traces"][0]["caches"]
    words = one["replay"][1:]
    assert stress_json(*words, run_path=run_path) == one


def test_it_is_the_real_order_that_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make_trace(len(PROGRAMS), 1000, 1, exponent=0.8, changed=0.0)
    real = replay(trace, PROGRAMS, 300_000, "value")
    rank = orders.rank
    monkeypatch.setattr(orders, "rank", lambda *given: Ranked(*(each[::-1] for each in rank(*given)[:2])))
    assert replay(trace, PROGRAMS, 300_000, "value").saved_ns < real.saved_ns


@pytest.mark.long
def test_by_value_saves_much_more_than_by_cost_and_never_less_than_by_cost_or_last_use() -> None:
    """The bar of docs/eviction.md, on a quarter of its look-ups."""
    programs = load_programs(str(Path(__file__).with_name("costs.json")))
    for trace in standard_traces(programs, 5000, 1):
        limit_bytes = sum(program.size_bytes for program in trace.programs) // 20
        lru, cost, value = (
            replay(trace.requests, trace.programs, limit_bytes, order).saved_ns for order in ("lru", "cost", "value")
        )
        assert value >= max(cost, lru), trace.name
        if trace.name in ("default", "zipf 1.1", "changed 0.1"):
            assert value >= 1.3 * cost, trace.name


_programs = st.lists(
    st.builds(Program, st.just("p"), st.integers(1, 10**10), st.integers(1, 10**6)), min_size=2, max_size=8
)


@property_test
@given(_programs, st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), min_size=1, max_size=60), st.integers(1))
def test_no_order_saves_more_than_the_bound_or_loses_count(
    programs: list[Program], requests: list[tuple[int, int]], limit_bytes: int
) -> None:
    trace = [Request(program % len(programs), version) for program, version in requests]
    bound = upper_bound(trace, programs, limit_bytes)
    for order in ORDERS:
        saved = replay(trace, programs, limit_bytes, order)
        assert saved.saved_ns <= bound + 1
        assert saved.hits <= len(trace) - len(set(trace))


@pytest.mark.long
@pytest.mark.cuda
def test_costs_are_measured_with_the_real_compiler_and_kept(run_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    report = simulate(run_path, "--kernels", "2", "--seed", "1", "--zipf", "0.8", "--save-costs", str(path))
    programs = load_programs(str(path))
    assert len(programs) == report["traces"][0]["programs"] > 2
    expensive = max(programs, key=lambda program: program.cost_ns)
    assert expensive.name.startswith(("cooperative groups", "block reduce"))
    assert all(program.size_bytes > 1000 and program.cost_ns > 10**6 for program in programs)
