# SPDX-License-Identifier: Apache-2.0
"""The stores that take the place of torch's remote caches: graphs, AOTAutograd's results, and Dynamo's profiles.

Keeps invariant 7 (never take the job down): after a failure of lockcache each store is empty.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lockcache.integrations.adapter import Shared
from lockcache.integrations.inductor.graph_keys import GraphKeys
from lockcache.integrations.inductor.ranks import has_ranks, would_hang
from lockcache.integrations.inductor.spans import Spans
from lockcache.integrations.inductor.values import pack, state_cost_ns, unpack

__all__ = ["Stores"]


class Stores:
    """What Inductor finds on lockcache and stores there, with what each entry cost."""

    def __init__(self, shared: Shared, builds: Spans, graph_keys: GraphKeys) -> None:
        """``builds``: when the C++ compiler ran, whose results have entries of their own."""
        self._shared = shared
        self._graph_keys = graph_keys
        self._builds = builds
        self._graphs = Spans()
        # When each key was missed.
        self._missed: dict[str, int] = {}
        # Whether bundles of this thread's compilation are stored before it is left.
        self._bundles = threading.local()

    def back_ends(self, base: Any) -> tuple[Any, Any, Any]:
        """Make the classes that torch's remote caches use: of graphs, of AOTAutograd's results, and of profiles."""
        stores = self

        class Graphs(base):  # type: ignore[misc]
            """By turns: Inductor stores each that it looked for, unless compiling raises."""

            def _get(self, key: str) -> bytes | None:
                return stores._find(key, "an FX graph", by_turns=True)

            def _put(self, key: str, data: bytes) -> None:
                stores._keep(key, data, stores._cost_of_graph)

        class Autograd(base):  # type: ignore[misc]
            """Without turns, because each is looked for long before it is stored. A bundle of graphs has its turn."""

            def _get(self, key: str) -> bytes | None:
                return stores._find(key, "a bundle of graphs", by_turns=stores._has_bundles())

            def _put(self, key: str, data: bytes) -> None:
                stores._keep(key, data, stores._cost_of_bundle if _is_bundled() else stores._cost_of_result)

        class Profiles(base):  # type: ignore[misc]
            """Without turns: a profile costs nothing, and each process of the job stores its own over it."""

            def _get(self, key: str) -> bytes | None:
                return stores._find(key)

            def _put(self, key: str, data: bytes) -> None:
                stores._keep(key, data, lambda *_: 0)

        return Graphs, Autograd, Profiles

    def compiling_bundles(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """``own``, which looks up, compiles and stores bundles of graphs; when it is left their turns end."""
        compiling = self._shared.compiling(own, stores_all=True)

        @functools.wraps(own)
        def call(*args: Any, **options: Any) -> Any:
            model = args[0] if args else options.get("model_")
            inputs = args[1] if len(args) > 1 else options.get("example_inputs_", ())
            with self._in_bundles(model, inputs):
                return compiling(*args, **options)

        return call

    @contextlib.contextmanager
    def _in_bundles(self, model: Any, inputs: Any) -> Iterator[None]:
        before = self._has_bundles()
        with self._shared.never_raising():
            self._bundles.are_stored_here = _is_bundled() and _stores_at_once(model, inputs)
        try:
            yield
        finally:
            self._bundles.are_stored_here = before

    def _has_bundles(self) -> bool:
        return bool(getattr(self._bundles, "are_stored_here", False))

    def _find(self, key: str, label: str = "", *, by_turns: bool = False) -> bytes | None:
        shared = self._shared
        if shared.has_failed or would_hang():
            return None
        parts = self._graph_keys.parts_of(key)
        if by_turns and not has_ranks():
            found = shared.look_up(key, label, parts)
        else:
            found = shared.look(key, label if by_turns else "", parts)
        if found is None:
            self._missed[key] = time.perf_counter_ns()
            return None
        with shared.never_raising():
            return unpack(found)
        return None

    def _keep(self, key: str, data: bytes, cost_of: Callable[[bytes, int | None, int], int]) -> None:
        shared = self._shared
        if shared.has_failed:
            return
        with shared.never_raising():
            cost_ns = cost_of(data, self._missed.pop(key, None), time.perf_counter_ns())
            shared.store(key, pack(data), compile_cost_ns=cost_ns)

    def _cost_of_graph(self, data: bytes, missed_ns: int | None, now_ns: int) -> int:
        cost_ns = self._cost_of_bundle(data, missed_ns, now_ns)
        if missed_ns is not None:
            self._graphs.add(missed_ns, now_ns)
        return cost_ns

    def _cost_of_bundle(self, data: bytes, missed_ns: int | None, now_ns: int) -> int:
        if missed_ns is None:
            return state_cost_ns(data)
        return max(now_ns - missed_ns - self._builds.covered_ns(missed_ns, now_ns), 1)

    def _cost_of_result(self, data: bytes, missed_ns: int | None, now_ns: int) -> int:
        # What torch states, because between the two graphs of a result the program itself ran.
        cost_ns = state_cost_ns(data)
        if missed_ns is not None:
            cost_ns -= self._graphs.covered_ns(missed_ns, now_ns)
        return max(cost_ns, 1)


def _is_bundled() -> bool:
    """Returns whether AOTAutograd's results contain their graphs, so that Inductor asks for no graph."""
    from torch._functorch import config

    return bool(getattr(config, "bundled_autograd_cache", False))


def _stores_at_once(model: Any, inputs: Any) -> bool:
    """Returns whether a bundle is stored as soon as it is compiled.

    One with a backward graph is stored after the first backward pass, which may never come.
    """
    import torch
    from torch._functorch import config

    if getattr(config, "force_non_lazy_backward_lowering", False) or not torch.is_grad_enabled():
        return True
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return not any(getattr(each, "requires_grad", False) for each in (*inputs, *parameters))
