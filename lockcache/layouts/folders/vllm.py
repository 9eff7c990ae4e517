# SPDX-License-Identifier: Apache-2.0
"""vLLM's compilations (``$VLLM_CACHE_ROOT``, ``~/.cache/vllm``): the folder of a model's hash is one entry.

It is in ``torch_compile_cache``, by ten digits, and in ``torch_aot_compile`` next to or in it, by 64. In it are a
folder for each rank, and in these the caches of Inductor and Triton and what vLLM wrote itself. A hash whose factors
changed is never read again, and nobody removes it. vLLM looks at a start whether a rank has been compiled, and opens
what it finds until all graphs are loaded: a hash that was used lately stays, and one in which a process holds a lock. A
server that runs makes the folders again that it needs later.
"""

from __future__ import annotations

from typing import Final

from lockcache.layouts.folders.scan import Program, scan

#: What vLLM looks for at a start, in the folder of each rank.
COMPILED: Final = "vllm_compile_cache.py"

_RANK: Final = r"rank_\d+(?:_\d+)?"
# Written by nothing but vLLM. A folder of a rank is not a mark, nor is a `model`: checkpoints have both, by ten digits.
_FOLDER: Final = r"[0-9a-f]{10}|[0-9a-f]{64}"
_MARKS: Final = (
    rf"(?:.*/)?(?:{_FOLDER})/{_RANK}/(?:inductor_cache|triton_cache)",
    rf"(?:.*/)?(?:{_FOLDER})/{_RANK}/(?:.*/)?(?:vllm_compile_cache\.py|computation_graph\.py|cache_key_factors\.json)",
    rf"(?:.*/)?torch_aot_compile/[0-9a-f]{{64}}/{_RANK}/model",
)
_COMPILED: Final = "torch_compile_cache"
_AHEAD: Final = "torch_aot_compile"

#: What vLLM compiled for one model in one configuration.
VLLM: Final = Program(
    name="vllm",
    homes=((), (_COMPILED,), (_AHEAD,), (_COMPILED, _AHEAD)),
    folder=_FOLDER,
    is_deep=True,
    mark="|".join(_MARKS),
    part=_RANK,
    # Written when all graphs of a rank are compiled.
    finished=rf"{_RANK}/(?:(?:.*/)?vllm_compile_cache\.py|model)",
)


def is_vllm(root_fd: int) -> bool:
    """Returns whether a model's compilations are here."""
    return next(scan(root_fd, VLLM), None) is not None
