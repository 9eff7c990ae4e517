# SPDX-License-Identifier: Apache-2.0
"""``get_or_compute`` for asyncio: the event loop never waits for a disk, a lock or somebody else's compilation.

Each step that may wait runs in a thread of its own, not in one of a pool: those who wait for a key could fill a pool,
and the one that has the turn would find no thread to store in.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lockcache.serving import awaiting, watch
from lockcache.single_flight import Turn, computing

if TYPE_CHECKING:
    from lockcache.resource import Entry, ProgramCacheResource

_T = TypeVar("_T")


async def aget_or_compute(cache: ProgramCacheResource, key: bytes, compute: Callable[[], Any], label: str) -> bytes:
    """See :meth:`lockcache.ProgramCacheResource.aget_or_compute`."""
    token = awaiting.set(asyncio.current_task()) if watch.is_on else None
    try:
        found: Entry | Turn[Entry] = await _in_thread(lambda: cache.begin(key, label=label))
    finally:
        if token is not None:
            awaiting.reset(token)
    if not isinstance(found, Turn):
        return found.code
    turn = found
    computing(cache, key, turn)
    try:
        value = await _computed(compute)
    except BaseException as error:
        turn.give_up(failed=isinstance(error, Exception))
        raise
    # However the task ends from here on, the thread ends the turn.
    return (await _in_thread(lambda: turn.store(value))).code


async def _computed(compute: Callable[[], Any]) -> object:
    if inspect.iscoroutinefunction(compute):
        return await compute()
    value = await _in_thread(compute)
    return await value if inspect.isawaitable(value) else value


async def _in_thread(action: Callable[[], _T]) -> _T:
    """Run ``action`` in a new thread, and return its result. If the task is cancelled, the result is dropped."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        settle: Callable[[], None]
        try:
            result = context.run(action)
        except StopIteration as error:  # a future takes any error but this
            settle = _settle(future, future.set_exception, RuntimeError(f"compute raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - it goes on in the task
            settle = _settle(future, future.set_exception, error)
        else:
            settle = _settle(future, future.set_result, result)
        # A loop that is not running would keep the result, and with it the turn.
        if not future.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="lockcache", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], set_: Callable[[Any], None], outcome: object) -> Callable[[], None]:
    return lambda: None if future.done() else set_(outcome)
