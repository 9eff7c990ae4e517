# SPDX-License-Identifier: Apache-2.0
"""The model of the protocol: explored whole, it keeps all promises, and it finds what is planted; SPIN agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.model.protocol import FAULTS
from lockcache_stress.model.spin import CHECKED, FAULTY, run_spin, why_no_spin
from lockcache_stress.model.states import MODELS, PLANTED, search
from tests.stress.support import stress_json


def test_no_state_of_any_model_breaks_a_promise() -> None:
    found = [search(model) for model in MODELS]
    assert [each.model for each in found if not each.ok] == []
    assert sum(each.states for each in found) > 10_000


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    assert search(PLANTED[fault]).ok
    assert not search(PLANTED[fault]._replace(fault=fault)).ok


@pytest.mark.skipif(why_no_spin() is not None, reason=str(why_no_spin()))
def test_spin_finds_that_all_end_and_that_they_do_not_where_a_dead_holder_keeps_its_lease() -> None:
    for checked in (CHECKED[0], FAULTY[0]):
        assert all(each.is_expected for each in run_spin([checked]))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(why_no_spin() is not None, reason=str(why_no_spin()))
def test_spin_finds_the_cap_kept_and_the_page_exact_and_each_claim_broken_by_a_fault() -> None:
    found = run_spin([*CHECKED[1:], *FAULTY[1:]])
    assert [each for each in found if not each.is_expected] == []
    assert {each.claim for each in found if each.errors} == {"ends", "capped", "counted", "exact"}


@pytest.mark.long
def test_the_command_says_how_many_states_there_are(run_path: Path) -> None:
    found = stress_json("model", "--no-spin", run_path=run_path)
    assert found["ok"]
    assert len(found["models"]) == len(MODELS)
    assert stress_json("model", "--planted", "--no-spin", run_path=run_path)["ok"]
