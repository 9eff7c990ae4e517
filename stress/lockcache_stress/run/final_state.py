"""The final state: when all workers have ended, accounting equals the disk, and every entry left is whole.

After SIGKILLs that holds one ``recount()`` later (invariant 5); without them it holds at once. A write that was dropped
for want of a lock removes the older value without accounting for it, by design: then the page may say too much.
"""

from __future__ import annotations

import os
from typing import Any

from lockcache import FileStreamProgramCache
from lockcache_stress.judge import parse_value
from lockcache_stress.plan import Plan
from lockcache_stress.run.outcome import Check, Outcome, some, zero
from lockcache_stress.run.sampler import drift_bytes

__all__ = ["inspect"]


def inspect(outcome: Outcome) -> list[Check]:
    """The checks of the directory that a run has left."""
    plan = outcome.plan
    checks = [_drift(outcome)] if not plan.recounts_first else []
    if outcome.kills:
        checks.append(some("SIGKILLs", outcome.kills))
    if plan.recounts_first:
        checks.append(Check("accounting drift before a recount", f"{drift_bytes(plan.directory):,} bytes"))
    if outcome.kills or plan.recounts_first:
        checks.append(_drift_after_recount(plan))
    if plan.variants == 1 and not plan.extra.get("damages"):
        checks.append(_unreadable(plan))
    if outcome.daemon is not None:
        checks.extend(_daemon(outcome.daemon))
    return checks


def _drift(outcome: Outcome) -> Check:
    drift = drift_bytes(outcome.plan.directory)
    if outcome.kills:
        return Check("accounting drift after kills", f"{drift:,} bytes", ">= 0", drift >= 0)
    is_excused = outcome.totals["dropped"] > 0 and drift > 0
    return Check("accounting drift", f"{drift:,} bytes", "0", drift == 0 or is_excused)


def _drift_after_recount(plan: Plan) -> Check:
    FileStreamProgramCache(plan.directory).recount()
    drift = drift_bytes(plan.directory)
    staged = len(os.listdir(os.path.join(plan.directory, "tmp")))
    value = f"{drift:,} bytes, {staged} staged files left"
    return Check("after one recount", value, "0 and 0", drift == 0 and staged == 0)


def _unreadable(plan: Plan) -> Check:
    """Reads every key: what is served must be whole, and nothing may be there that is not."""
    cache = FileStreamProgramCache(plan.directory)
    found = wrong = 0
    for index in range(plan.keys):
        code = cache.get(plan.key(index))
        if code is not None:
            found += 1
            proof = parse_value(code)
            wrong += proof is None or proof.key != index or proof.token != plan.token
    wrong += cache.stats().corrupt_entries
    return Check("entries left, not whole", f"{wrong} of {found}", "0", wrong == 0)


def _daemon(found: dict[str, Any]) -> list[Check]:
    ended = bool(found["ended_when_asked"]) and found["exit_code"] == 0
    text = "yes" if ended else f"exit code {found['exit_code']}"
    return [
        Check("daemon sweeps", str(found["sweeps"])),
        Check("evictions by the daemon", f"{found['evicted_entries']:,} ({found['evicted_bytes']:,} bytes)"),
        zero("daemon errors and warnings", len(found["complaints"])),
        Check("daemon lived and ended when asked", text, "yes", ended),
    ]
