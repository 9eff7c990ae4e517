# SPDX-License-Identifier: Apache-2.0
"""Tables of what pairs and moves found, and the checks that they are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockcache_stress.experiments.keys.moves import Moved
from lockcache_stress.experiments.keys.pairs import Changed, Outcome
from lockcache_stress.experiments.keys.programs import Names
from lockcache_stress.run import Check, Grid, GridRow, Tabled, some, zero


def tabulate_pairs(tried: Sequence[Outcome], seed: int) -> Tabled:
    """Returns the verdict about pairs, and what reached the output."""
    compared = [each.changed for each in tried if each.changed is not None]
    hidden = [each for each in compared if each.is_other_output and not each.is_other_key]
    unnamed = [each for each in compared if bool(each.named) != each.is_other_key]
    reached = sum(each.is_other_output for each in compared)
    return Tabled(
        name="keys",
        title=f"keys: {len(tried)} pairs, seed {seed}",
        lines=[
            Check("pairs compared", f"{len(compared)}", "more than 0", bool(compared)),
            Check("outputs that differ under one key", f"{len(hidden)} of {reached}", "0", not hidden),
            Check("keys that differ in no part", f"{len(unnamed)}", "0", not unnamed),
        ],
        numbers=pairs_numbers(tried, seed),
        counts=[f"{len(tried):,}"],
        grids=[
            Grid(
                "what was changed", ("change", "pairs", "reaches the output", "key differs", "named"), _pair_rows(tried)
            )
        ],
        findings=[{"error": f"{each.what}: {_words(each)}"} for each in compared if not each.ok],
    )


def _pair_rows(tried: Sequence[Outcome]) -> list[GridRow]:
    rows = []
    for what in dict.fromkeys(each.what for each in tried):
        changed = [each.changed for each in tried if each.what == what and each.changed is not None]
        output, key = sum(each.is_other_output for each in changed), sum(each.is_other_key for each in changed)
        reaches = f"yes, {output} of {len(changed)}" if output else "no" if changed else "never compiled"
        named = sorted({name for each in changed for name in each.named})
        rows.append(
            GridRow([what, str(len(changed)), reaches, str(key), ", ".join(named)], all(each.ok for each in changed))
        )
    return rows


def _words(changed: Changed) -> str:
    if changed.is_other_output and not changed.is_other_key:
        return "the output is another, the key the same"
    key = "another" if changed.is_other_key else "the same"
    return f"the key is {key}, named: {', '.join(changed.named) or 'nothing'}"


def pairs_numbers(tried: Sequence[Outcome], seed: int) -> dict[str, object]:
    """Returns the pairs, for ``--json``."""
    pairs = [
        {"change": each.what, **(each.changed._asdict() if each.changed else {"compiled": False})} for each in tried
    ]
    return {"seed": seed, "pairs": pairs}


_BY_OPTIONS: Final = "by options"


def tabulate_moves(tried: Sequence[Moved], seed: int) -> Tabled:
    """Returns the verdict about moves, and the share of hits of each kind."""
    compiled = [each for each in tried if each.is_compiled]
    free = [each for each in compiled if each.must_hit]
    wrong = sum(each.is_wrong for each in tried)
    return Tabled(
        name="moves",
        title=f"moves: {len(tried)} moves, seed {seed}",
        lines=[
            some("moves where nothing active names a path", len(free)),
            zero("of these, misses at the second place", sum(not each.is_hit for each in free)),
            zero("places that got another output than their own", wrong),
        ],
        numbers=moves_numbers(tried, seed),
        counts=[f"{len(tried):,}"],
        grids=[
            Grid("what was moved", ("active names", "content", "moves", "other output", "hits"), _move_rows(tried)),
            Grid(
                "what its path reaches, if no text names it", ("option", "moves", "other output"), _option_rows(tried)
            ),
        ],
        findings=[{"error": _moved_in_words(each)} for each in tried if not each.ok],
    )


def moves_numbers(tried: Sequence[Moved], seed: int) -> dict[str, object]:
    """Returns the moves, for ``--json``."""
    moves = [{**each._asdict(), "names": _group(each), "must_hit": each.must_hit} for each in tried]
    return {"seed": seed, "moves": moves}


def _group(moved: Moved) -> str:
    return _BY_OPTIONS if moved.telling else moved.names.value


def _move_rows(tried: Sequence[Moved]) -> list[GridRow]:
    rows = []
    for group in (*(names.value for names in Names), _BY_OPTIONS):
        those = [each for each in tried if _group(each) == group]
        kinds = [] if group == _BY_OPTIONS else sorted({each.kind for each in those})
        rows += [_move_row(group, kind, [each for each in those if each.kind == kind]) for kind in kinds]
        rows += [_move_row(group, "all", those)] if those else []
    return rows


def _move_row(group: str, kind: str, those: Sequence[Moved]) -> GridRow:
    compiled = [each for each in those if each.is_compiled]
    other, hits = sum(each.is_other_output for each in compiled), sum(each.is_hit for each in compiled)
    share = f"{hits} of {len(compiled)}" + (f", {100 * hits / len(compiled):.0f} %" if compiled else "")
    return GridRow([group, kind, str(len(those)), str(other), share], all(each.ok for each in those))


def _option_rows(tried: Sequence[Moved]) -> list[GridRow]:
    """Returns how often the output was another with each option, without another that tells paths."""
    free = [each for each in tried if each.is_compiled and each.names is Names.NOTHING]
    rows = []
    for option in sorted({name for each in free for name in each.options}):
        those = [each for each in free if option in each.options and set(each.telling) <= {option}]
        rows.append(GridRow([option, str(len(those)), str(sum(each.is_other_output for each in those))], True))
    return rows


def _moved_in_words(moved: Moved) -> str:
    what = "got another output than its own" if moved.is_wrong else "missed, and nothing active names a path"
    return f"{moved.kind}, spelled {' and '.join(moved.spelled)}: a place {what}"
