# SPDX-License-Identifier: Apache-2.0
"""Every back end against a plain dict: any sequence of calls."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.backends import BACK_ENDS, BackEnd
from tests.matrix_sampling import diagonals
from tests.properties.examples import examples
from tests.properties.model import CAPS, machine_for


# Hundreds of calls an example, each with its accounting compared with the disk: seconds, and on a busy machine minutes.
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "back_end, cap", diagonals([pytest.param(each, id=each.name) for each in BACK_ENDS if not each.has_server], CAPS, 3)
)
def test_any_sequence_of_calls_gives_what_a_dict_would(back_end: BackEnd, cap: int | None) -> None:
    run_state_machine_as_test(machine_for(back_end, cap), settings=examples(9, stateful_step_count=40))
