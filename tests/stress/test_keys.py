# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress keys``: an output that changes has to change the key, and what does not tell that is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("cuda.core")

from lockcache.keys import environment, make
from lockcache.keys.paths import Reach
from lockcache_stress.experiments.keys import Outcome, tabulate_moves, tabulate_pairs
from lockcache_stress.experiments.keys.moves import move
from lockcache_stress.experiments.keys.pairs import _changes, _compare, _Program
from lockcache_stress.experiments.keys.places import Place
from lockcache_stress.experiments.keys.programs import draw
from tests.stress.support import stress, stress_json

pytestmark = pytest.mark.cuda


@pytest.mark.slow
def test_a_run_tells_what_reached_the_output_and_is_replayed_by_its_seed(run_path: Path) -> None:
    found = stress_json("keys", "--pairs", "7", "--seed", "1", run_path=run_path)
    changed = {pair["change"]: pair for pair in found["pairs"]}
    assert changed["header"]["named"] == ["header x.h"]
    assert changed["option restrict"]["is_other_output"]
    assert stress_json("keys", "--pairs", "7", "--seed", "1", run_path=run_path) == found
    shown = stress("keys", "--pairs", "2", "--seed", "3", run_path=run_path)
    assert "reaches the output" in shown.stdout
    assert shown.returncode == 0


@pytest.mark.slow
def test_a_key_that_leaves_out_what_reaches_the_output_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = _changes(("sm_90",))["working directory"]
    one = _Program(7, {"arch": "sm_90", "lineinfo": True})
    right = _compare(str(tmp_path), "working directory", one, change(random.Random(1), one))
    assert right is not None
    assert (right.is_other_output, right.ok, right.named) == (True, True, ("working directory",))
    monkeypatch.setattr(environment, "working_directory", list)
    wrong = _compare(str(tmp_path), "working directory", one, change(random.Random(1), one))
    assert wrong is not None
    assert (wrong.is_other_output, wrong.is_other_key, wrong.ok) == (True, False, False)
    found = tabulate_pairs([Outcome(each.what, each) for each in (right, wrong)], seed=1)
    assert [check.name for check in found.checks() if not check.ok] == ["outputs that differ under one key"]
    assert "the output is another, the key the same" in str(found.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, planted, expected",
    [
        ("sizeof(__FILE__)", Reach.NONE, "places that got another output than their own"),
        ("an assertion", Reach.NONE, "places that got another output than their own"),
        ("a comment", Reach.ANY, "of these, misses at the second place"),
    ],
)
def test_a_rule_about_paths_that_is_wrong_is_found(
    kind: str, planted: Reach, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [Place(f"{tmp_path}/{name}", "absolute", 0) for name in ("one", "the-other")]
    monkeypatch.setattr(make, "reach_of_paths", lambda *_: planted)
    moved = move(str(tmp_path), draw(random.Random(3), kind), {"arch": "sm_90", "target": "cubin"}, places)
    failed = {check.name for check in tabulate_moves([moved], seed=3).checks() if not check.ok}
    assert expected in failed
    monkeypatch.undo()
    places = [Place(f"{place.root}-again", "absolute", 0) for place in places]
    assert move(str(tmp_path), draw(random.Random(3), kind), {"arch": "sm_90", "target": "cubin"}, places).ok
