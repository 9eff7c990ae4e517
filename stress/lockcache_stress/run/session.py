# SPDX-License-Identifier: Apache-2.0
"""The session of a stress run, from options to outcome: rounds, directory, daemon, references, workers, judgement.

The histories are judged, and the directory when all workers have ended: the accounting must equal the disk, and every
entry must be whole. After SIGKILLs this must hold after one ``recount()`` (invariant 5, death is free); without
SIGKILLs at once. A write that was dropped for want of a lock removes the older value, whose bytes are accounted for
until the next reap: the page may state too much then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from glob import glob
from typing import Any, Final

from lockcache import FileStreamProgramCache
from lockcache_stress.errors import UnusableError
from lockcache_stress.gpu import References, compile_references, find_arch, make_slots, need_archs
from lockcache_stress.judge import as_html, as_text, judge_histories, load_histories, parse_value, recorded_command
from lockcache_stress.plan import Plan, Scenario, Step
from lockcache_stress.run.counters import Counters
from lockcache_stress.run.daemons import DaemonProcess, Relay
from lockcache_stress.run.outcome import Check, Outcome, some, zero
from lockcache_stress.run.rounds import ROUND_SECONDS, Round, Show, cut, run_rounds
from lockcache_stress.run.runner import run
from lockcache_stress.run.sampler import drift_bytes
from lockcache_stress.trouble import Workspace, open_workspace

# The most variants of a slot.
_NVRTC_VARIANTS: Final = 3


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    processes: int
    seconds: float
    max_size_bytes: int
    seed: int
    directory: str | None = None
    plant: str | None = None
    fail_fast: bool = False
    #: The folder for the histories, and the drawing of an illegal one.
    histories: str | None = None
    #: The longest round.
    round_seconds: float = ROUND_SECONDS
    #: Called with the outcome of a run in rounds after its first round, for a run that is interrupted.
    begun: Callable[[Outcome], object] = lambda outcome: None


def run_bytes(scenario: Scenario, options: Options, show: Show) -> Outcome:
    """Run a plain byte scenario, in rounds if it is long. For one that ends by itself, ``seconds`` is only a limit."""
    if scenario.ends_by_itself:
        return _run_bytes(scenario, options, show)
    return _in_rounds(options, show, partial(_run_bytes, scenario))


def _in_rounds(options: Options, show: Show, run_one: Callable[[Options, Show], Outcome]) -> Outcome:
    def run_round(each: Round, shown: Show) -> Outcome:
        histories = options.histories
        if histories is not None and each.of > 1:
            histories = os.path.join(histories, each.folder)
        return run_one(replace(options, seconds=each.seconds, seed=each.seed, histories=histories), shown)

    rounds = cut(options.seconds, options.seed, options.round_seconds)
    return run_rounds(rounds, run_round, show, fail_fast=options.fail_fast, begun=options.begun)


def _run_bytes(scenario: Scenario, options: Options, show: Show) -> Outcome:
    with ExitStack() as stack:
        space = _make_place(scenario, options, stack)
        plan = replace(
            _plan(scenario.name, options, space),
            keys=scenario.keys + scenario.keys_each * options.processes,
            writers=options.processes * (1 + scenario.writers_each) + scenario.kills,
            make_step=scenario.make_step,
            **scenario.conditions(),
        )
        if scenario.daemons:
            return _run_relay(scenario, plan, space, options, show)
        outcome = _run(plan, space, options, show, kills=scenario.kills)
        happened = [some(words, outcome.totals[name]) for name, words in scenario.must_happen.items()]
        outcome.extra_checks = [*inspect(outcome), *happened, *scenario.checks(outcome)]
        return outcome


def _make_place(scenario: Scenario, options: Options, stack: ExitStack) -> Workspace:
    reason = scenario.why_not()
    if reason is not None:
        raise UnusableError(f"{scenario.name} cannot be run here: {reason}")
    if options.processes < scenario.least_processes:
        raise UnusableError(
            f"{scenario.name} needs at least {scenario.least_processes} processes, not {options.processes}"
        )
    if scenario.place is not None and options.directory is not None:
        raise UnusableError(f"{scenario.name} makes a place of its own: --directory {options.directory} cannot be used")
    space = stack.enter_context(open_workspace(options.directory, wants_own_mount=scenario.wants_own_mount))
    if scenario.place is not None:
        stack.enter_context(scenario.place(space.cache, options.seed))
    return space


def _run_relay(scenario: Scenario, plan: Plan, space: Workspace, options: Options, show: Show) -> Outcome:
    relay = Relay(
        space.cache,
        space.control,
        plan.max_size_bytes,
        count=scenario.daemons,
        seed=plan.seed,
        command=recorded_command(space.control),
    )
    with relay:
        outcome = _run(replace(plan, cap_from_daemon=True), space, options, show)
    outcome.kills = relay.kills
    outcome.findings.extend(relay.findings())
    outcome.extra_checks = [*inspect(outcome), *relay.checks()]
    return outcome


def run_nvrtc(
    make_step: Callable[[Any], Step], options: Options, *, kernels: int, gpu: str, with_daemon: bool, show: Show
) -> Outcome:
    """Run a scenario that compiles with NVRTC, in rounds if it is long. ``gpu`` is auto, on or off."""
    archs, gpu_arch = _find_archs(gpu)
    slots = make_slots(kernels, options.seed, archs)
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-", ignore_cleanup_errors=True) as folder:
        compile_references(slots, folder, lambda done, all_: show("references", done / all_, f"{done}/{all_}"))
        extra = {
            "kernels": kernels,
            "kernels_seed": options.seed,
            "archs": archs,
            "gpu_arch": gpu_arch,
            "references": folder,
        }
        outcome = _in_rounds(options, show, partial(_run_nvrtc, make_step, len(slots), extra, with_daemon))
        outcome.working_set_bytes = References(slots, folder).total_bytes()
        return outcome


def _run_nvrtc(
    make_step: Callable[[Any], Step],
    keys: int,
    extra: dict[str, Any],
    with_daemon: bool,
    options: Options,
    show: Show,
) -> Outcome:
    with open_workspace(options.directory) as space:
        plan = replace(
            _plan("nvrtc", options, space),
            keys=keys,
            variants=_NVRTC_VARIANTS,
            make_step=make_step,
            cap_from_daemon=with_daemon,
            extra=extra,
        )
        if with_daemon:
            daemon = DaemonProcess(space.cache, space.control, options.max_size_bytes, history=space.control)
            with daemon:
                outcome = _run(plan, space, options, show)
            outcome.daemon = daemon.result
        else:
            outcome = _run(plan, space, options, show)
        outcome.extra_checks = inspect(outcome)
        return outcome


def _plan(name: str, options: Options, space: Workspace) -> Plan:
    named = ("processes", "seconds", "seed", "max_size_bytes", "plant", "fail_fast")
    same = {name: getattr(options, name) for name in named}
    return Plan(scenario=name, directory=space.cache, control=space.control, keys=0, **same)


def _run(plan: Plan, space: Workspace, options: Options, show: Show, kills: int = 0) -> Outcome:
    def progress(share: float, counters: Counters) -> None:
        words = f"{counters.total('operations'):,} operations, {counters.total('hits'):,} hits"
        compiles = counters.total("compiles")
        show(plan.scenario, share, f"{words}, {compiles:,} compiles" if compiles else words)

    show(plan.scenario, 0.0, f"starting {plan.processes} processes")
    outcome = run(plan, kills=kills, is_own_mount=space.is_own_mount, progress=progress)
    progress(1.0, Counters(plan))
    judge(outcome, lambda share: show("histories", share, "one register per key?"))
    if options.histories is not None:
        keep(outcome, options.histories)
    return outcome


def _find_archs(gpu: str) -> tuple[tuple[str, ...], str | None]:
    """Returns the architectures to compile for, and the GPU's, if it is used."""
    archs = need_archs("the nvrtc scenario needs")
    gpu_arch = None if gpu == "off" else find_arch()
    if gpu == "on" and gpu_arch is None:
        raise UnusableError("--gpu on: no GPU can be used here (no device, or no driver); --gpu auto goes without")
    if gpu_arch is not None and gpu_arch not in archs:
        archs = (*archs[1:], gpu_arch)
    return archs, gpu_arch


def judge(outcome: Outcome, progress: Callable[[float], object]) -> None:
    """Judge every key's history; the smallest illegal part becomes the first of the findings."""
    outcome.histories = judged = judge_histories(load_histories(outcome.plan.control), progress)
    if judged.smallest is not None:
        key, reduced = judged.smallest
        outcome.findings.insert(0, {"key": key, "error": f"the history of key {key} is illegal:\n{as_text(reduced)}"})


def keep(outcome: Outcome, folder: str) -> None:
    """Copy the records into ``folder`` (read them with ``load_histories``), with a drawing of an illegal history."""
    os.makedirs(folder, exist_ok=True)
    for path in glob(os.path.join(outcome.plan.control, "history-*.bin")):
        shutil.copy(path, folder)
    if outcome.histories is not None and outcome.histories.smallest is not None:
        key, reduced = outcome.histories.smallest
        with open(os.path.join(folder, f"illegal-key-{key}.html"), "w") as file:
            file.write(as_html(reduced, f"{outcome.title}: key {key}"))


def inspect(outcome: Outcome) -> list[Check]:
    """Returns the checks of the directory that a run has left."""
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
    """Read every key, and check that every entry is whole, served or not."""
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
