"""All keys of a run, judged: how many histories are legal, and the smallest that is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockcache_stress.judge.linearizability import Checked, Ruling, check
from lockcache_stress.judge.operations import Kind, Operation
from lockcache_stress.judge.reduction import Reduced, reduce_history

__all__ = ["Judged", "judge_histories"]


@dataclass
class Judged:
    """What the histories of a run came to."""

    operations: int = 0
    ok: int = 0
    #: Keys whose histories no register could have had, and those that were too tangled to decide.
    illegal: list[int] = field(default_factory=list)
    #: How often each key's entry was taken away.
    removals: dict[int, int] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)
    #: Of the illegal ones the shortest: its key, and the part of it that shows why.
    smallest: tuple[int, Reduced] | None = None
    #: Of which part of the run that is, where it has several.
    smallest_in: str = ""

    def as_json(self) -> dict[str, Any]:
        """As numbers."""
        return {"operations": self.operations, "ok": self.ok, "illegal": self.illegal, "unknown": self.unknown}


def judge_histories(
    histories: Mapping[int, list[Operation]], progress: Callable[[float], object] = lambda share: None
) -> Judged:
    """Check every key. ``progress`` is called with the share that is done."""
    judged = Judged(operations=sum(map(len, histories.values())))
    found: dict[int, Checked] = {}
    for number, (key, operations) in enumerate(sorted(histories.items())):
        judged.removals[key] = sum(each.kind is Kind.REMOVED for each in operations)
        checked = check(operations)
        if checked.ruling is Ruling.OK:
            judged.ok += 1
        elif checked.ruling is Ruling.UNKNOWN:
            judged.unknown.append(key)
        else:
            judged.illegal.append(key)
            found[key] = checked
        progress((number + 1) / len(histories))
    reduced = {key: reduce_history(histories[key], checked) for key, checked in found.items()}
    if reduced:
        key = min(reduced, key=lambda each: len(reduced[each].operations))
        judged.smallest = key, reduced[key]
    return judged
