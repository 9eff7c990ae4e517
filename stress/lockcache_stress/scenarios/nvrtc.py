# SPDX-License-Identifier: Apache-2.0
"""Real NVRTC compilations through one shared directory: what a job with many ranks does.

Each worker draws kernels by Zipf; a missing kernel is compiled, compared with the reference, stored and read back; now
and then a kernel is overwritten (with another variant, where it has one, like a source that changed) or deleted. Half
of the reads ask for the metadata too, which names the exact write: code with the metadata of another write is torn.
Half of the misses go through compile-once, so that its leases run next to plain writes, overwrites, deletes and
evictions. No miss goes through ``lockcache.cuda.Program``, which makes its own keys and keeps no stamp: the herd tests
that class.
"""

from __future__ import annotations

import time
from typing import Any

from lockcache import Entry
from lockcache_stress.gpu import References, Slot, compile_cubin, make_slots, program_key
from lockcache_stress.judge import ProgramJudge, Stamp, stamp_metadata
from lockcache_stress.plan import Step
from lockcache_stress.run import Worker
from lockcache_stress.zipf import Zipf

_DELETES = 0.002
_OVERWRITES = 0.02
_LAUNCHES = 0.5
_COMPILED_ONCE = 0.5


def make_step(worker: Worker) -> Step:
    """Returns the step of one worker."""
    return _Programs(worker).step


class _Programs:
    def __init__(self, worker: Worker) -> None:
        plan = worker.plan
        self._worker = worker
        self._slots = make_slots(plan.extra["kernels"], plan.extra["kernels_seed"], tuple(plan.extra["archs"]))
        self._references = References(self._slots, plan.extra["references"])
        self._keys = [program_key(slot, plan.token) for slot in self._slots]
        self._zipf = Zipf(worker.rng, len(self._slots), 0.8)
        self._launcher = _make_launcher(plan.extra["gpu_arch"])
        self._gpu_arch = plan.extra["gpu_arch"]
        self._expected: dict[tuple[int, int], list[int]] = {}
        worker.judge = ProgramJudge(self._references, worker.register)

    def step(self) -> bool:
        """Do one operation on one kernel."""
        index = self._zipf.draw()
        roll = self._worker.rng.random()
        if roll < _DELETES:
            self._worker.delete(index, self._keys[index])
        elif roll < _DELETES + _OVERWRITES:
            self._overwrite(index)
        else:
            self._use(index)
        return True

    def _use(self, index: int) -> None:
        code = self._read(index)
        if code is None:
            self._compile(index)
            code = self._read(index)
        if code is not None and self._launcher is not None and self._worker.rng.random() < _LAUNCHES:
            self._launch(index, code)

    def _read(self, index: int) -> bytes | None:
        with_metadata = self._worker.rng.random() < 0.5
        return self._worker.get(index, with_metadata=with_metadata, key=self._keys[index])

    def _compile(self, index: int) -> None:
        variant = self._choose_variant(index)
        if self._worker.rng.random() < _COMPILED_ONCE:
            stamp = self._worker.register.begin_write(index, variant)
            key = self._keys[index]
            self._worker.get_or_write(index, stamp, lambda: self._entry(index, stamp, self._cubin(index, variant)), key)
        else:
            began = time.perf_counter_ns()
            cubin = self._cubin(index, variant)
            self._store(index, variant, cubin, compile_cost_ns=time.perf_counter_ns() - began)

    def _cubin(self, index: int, variant: int) -> bytes:
        slot = self._slots[index]
        cubin = compile_cubin(slot, variant)
        self._worker.count("compiles")
        if cubin != self._references[index][variant]:
            raise RuntimeError(f"NVRTC gave other bytes than for the reference: {slot}, variant {variant}")
        return cubin

    def _overwrite(self, index: int) -> None:
        variant = self._choose_variant(index)
        self._store(index, variant, self._references[index][variant])

    def _store(self, index: int, variant: int, cubin: bytes, **metadata: Any) -> None:
        stamp = self._worker.register.begin_write(index, variant)
        self._worker.write(index, stamp, self._entry(index, stamp, cubin, **metadata), self._keys[index])

    def _entry(self, index: int, stamp: Stamp, cubin: bytes, **metadata: Any) -> Entry:
        found = {"kind": "cubin", "arch": self._slots[index].arch, **metadata, **stamp_metadata(stamp)}
        return Entry(cubin, found)

    def _choose_variant(self, index: int) -> int:
        return self._worker.rng.randrange(self._slots[index].variants)

    def _launch(self, index: int, code: bytes) -> None:
        slot: Slot = self._slots[index]
        if slot.arch != self._gpu_arch:
            return
        variant = self._references[index].index(code)
        expected = self._expected.setdefault((index, variant), slot.kernel.expected(variant))
        if self._launcher.launch(code) != expected:
            raise RuntimeError(f"the GPU computed something else than {slot}, variant {variant} says")
        self._worker.count("launches")


def _make_launcher(gpu_arch: str | None) -> Any:
    if gpu_arch is None:
        return None
    from lockcache_stress.gpu import Launcher

    return Launcher()
