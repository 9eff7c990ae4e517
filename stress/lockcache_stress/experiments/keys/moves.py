# SPDX-License-Identifier: Apache-2.0
"""Moves: the same program and headers at two places, with the real NVRTC; the second place must be a hit, if it can.

Tries the rule that a key holds no path that cannot reach the output, and each one that can. A program is compiled
through ``lockcache.cuda.Program`` at one place, at another, and at the first again, with one cache. What the second
place gets must be what ``cuda.core.Program`` gives there, byte for byte, and what the first gets must stay what it was.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from lockcache import InMemoryProgramCache
from lockcache_stress.experiments.keys.pairs import draw_options
from lockcache_stress.experiments.keys.places import Place, draw_places, has_cccl, located_at
from lockcache_stress.experiments.keys.programs import KINDS, Moving, Names, draw
from lockcache_stress.gpu import need_archs
from lockcache_stress.run import Show

# With these the output names the files of headers without any word in a text.
_TELLING: Final = ("debug", "lineinfo", "link_time_optimization")
_TELLING_SHARE: Final = 0.2


class Moved(NamedTuple):
    """One move; without a compilation where NVRTC or the cache refuses the program."""

    kind: str
    names: Names
    #: How the directories of headers were spelled, before and after.
    spelled: tuple[str, str]
    #: The options that are set.
    options: tuple[str, ...]
    #: Which of them put paths into the output whatever the texts say.
    telling: tuple[str, ...]
    is_compiled: bool = False
    is_hit: bool = False
    is_other_output: bool = False
    #: Whether one of the places got what the compiler does not give there.
    is_wrong: bool = False

    @property
    def must_hit(self) -> bool:
        """Whether nothing active names a path."""
        return self.names is Names.NOTHING and not self.telling

    @property
    def ok(self) -> bool:
        """Whether each place got its own output, and the second a hit where the output cannot differ."""
        return not self.is_wrong and (self.is_hit or not self.is_compiled or not self.must_hit)


def try_moves(moves: int, seed: int, show: Show) -> Iterator[Moved]:
    """Try so many moves, of every kind. Raises :class:`UnusableError` without NVRTC."""
    archs = need_archs("keys are compared with")
    rng = random.Random(f"{seed}/moves")
    kinds = {name: kind.weight for name, kind in KINDS.items() if kind.names is not Names.CCCL or has_cccl()}
    with tempfile.TemporaryDirectory(prefix="lockcache-moves-") as root, _quietly():
        for number, kind in enumerate(rng.choices([*kinds], [*kinds.values()], k=moves), 1):
            show("moving", number / moves, kind)
            yield move(root, draw(rng, kind), _options(rng, archs), draw_places(rng, root, number))


@contextmanager
def _quietly() -> Iterator[None]:
    """Do without the warnings about computed names, of which there is one for each directory."""
    log = logging.getLogger("lockcache")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _options(rng: random.Random, archs: tuple[str, ...]) -> dict[str, Any]:
    fields = draw_options(rng, archs)
    if rng.random() > _TELLING_SHARE:
        fields = {name: value for name, value in fields.items() if name not in _TELLING} | {"target": "cubin"}
    return {**fields, "link_time_optimization": True} if fields["target"] == "ltoir" else fields


def move(root: str, moving: Moving, drawn: dict[str, Any], places: list[Place]) -> Moved:
    """Compile a program at two places, and at the first again."""
    fields = {**drawn, **moving.fields}
    target = fields.pop("target")
    one, other = places
    telling = tuple(name for name in _TELLING if fields.get(name))
    moved = Moved(moving.kind, moving.names, (one.spelling, other.spelling), tuple(sorted(fields)), telling)
    cache = InMemoryProgramCache()
    codes = [_compiled(root, moving, fields, target, place, cache) for place in (one, other)]
    hits = cache.stats().hits
    fresh = _compiled(root, moving, fields, target, other, None)
    if codes[0] is None or codes[1] is None:
        # Refused at one place and not at the other would be wrong, too.
        return moved._replace(is_wrong=codes != [None, None] or fresh is not None)
    again = _compiled(root, moving, fields, target, one, cache)
    return moved._replace(
        is_compiled=True,
        is_hit=hits > 0,
        is_other_output=codes[0] != fresh,
        is_wrong=codes[1] != fresh or again != codes[0],
    )


def _compiled(
    root: str, moving: Moving, fields: dict[str, Any], target: str, place: Place, cache: InMemoryProgramCache | None
) -> bytes | None:
    """Returns the output at a place, without a cache that of cuda.core; ``None`` for a program that is refused."""
    import cuda.core
    from cuda.core._utils.cuda_utils import CUDAError  # cuda.core has no public name for this class

    from lockcache.cuda import Program

    with located_at(place, moving, root) as located:
        options = cuda.core.ProgramOptions(**{"name": "k.cu", **fields, **located})
        try:
            if cache is None:
                return bytes(cuda.core.Program(moving.source, "c++", options).compile(target).code)
            return bytes(Program(moving.source, "c++", options).compile(target, cache=cache).code)
        except (CUDAError, RuntimeError, ValueError):
            return None  # two options exclude each other, or the output has no code
