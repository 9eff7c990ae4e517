# SPDX-License-Identifier: Apache-2.0
"""Pairs of compilations that differ in one thing: where the real NVRTC gives other bytes, the key must be another.

Tries the contract's rule that everything that can change the output changes the key. Each pair changes an option, a
macro, a header, an environment variable, the working directory, the target or the code of a program with random other
options; both are compiled through ``lockcache.cuda.Program``, and their bytes and keys are compared. Where the keys
differ, the parts that ``lockcache why`` names must differ too. Headers in another directory are the business of
:mod:`.moves`. Not proven: that keys differ only where they must, since a key that differs needlessly costs only a miss.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from lockcache import Entry, InMemoryProgramCache
from lockcache.explain import differences, statement_of
from lockcache_stress.gpu import need_archs
from lockcache_stress.run import Show

_SOURCE: Final = """
#include "x.h"
namespace {{ __device__ __noinline__ float helper(float x, float y) {{ return x * y + sqrtf(x) / y; }} }}
template <class T> __global__ void scale(T *a, T f) {{ a[threadIdx.x] *= f; }}
#ifdef FACTOR
#define SCALE FACTOR
#else
#define SCALE {salt}
#endif
extern "C" __global__ void k(float *a, const float *b, int n) {{
  float s = SCALE + FROM_HEADER; long long standard = __cplusplus;
  for (int i = 0; i < n; ++i) {{ s += helper(a[i], b[i + 1]) * 1e-40f; a[i] = s + standard; }}
}}
"""

#: Options, each with values to set. Not among them: options that cannot be cached (precompiled headers, ``time``), one
#: that writes to the user's cache directory (``use_bundled_headers``), and those that no compilation for cubins takes.
_OPTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "arch": ("sm_80", "sm_90", "sm_100"),
    "brief_diagnostics": (True,),
    "builtin_initializer_list": (False,),
    "builtin_move_forward": (False,),
    "debug": (True,),
    "device_as_default_execution_space": (True,),
    "device_code_optimize": (True,),
    "device_int128": (True,),
    "diag_suppress": (1, [177]),
    "disable_warnings": (True,),
    "extensible_whole_program": (True,),
    "extra_device_vectorization": (True,),
    "fma": (True, False),
    "frandom_seed": ("7", "8"),
    "ftz": (True, False),
    "lineinfo": (True,),
    "max_register_count": (16, 32),
    "minimal": (True,),
    "name": ("k.cu", "other.cu"),
    "no_cache": (True,),
    "no_display_error_number": (True,),
    "no_source_include": (False,),
    "ofast_compile": ("min", "max"),
    "optimization_info": ("inline",),
    "prec_div": (True, False),
    "prec_sqrt": (True, False),
    "ptxas_options": ("-O0", "-O1"),
    "relocatable_device_code": (True,),
    "split_compile": (1, 2),
    "std": ("c++14", "c++17", "c++20"),
    "undefine_macro": ("FACTOR", "UNUSED"),
    "use_fast_math": (True,),
}
#: NVRTC 13.5 applies this option to all later compilations of the process, so it is tried last.
_LASTING: Final[dict[str, tuple[Any, ...]]] = {"restrict": (True,)}

#: Variables that NVRTC is known to ignore, and some whose names only look like its own. Those that it reads may not
#: change while a process runs.
_VARIABLES: Final = (
    "CUDA_CACHE_PATH",
    "NVRTC_FLAGS",
    "LANG",
    "SOURCE_DATE_EPOCH",
)
_MOST_OTHERS: Final = 3
_DIRECTORY_SHARE: Final = 0.2
_LTOIR_SHARE: Final = 0.3


@dataclass(frozen=True)
class _Program:
    """One program to compile, with its surroundings."""

    salt: int
    fields: dict[str, Any] = field(default_factory=lambda: {"arch": "sm_90"})
    macros: dict[str, str] = field(default_factory=dict)
    header: str = "1"
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = "one"
    target: str = "cubin"
    names: tuple[str, ...] = ()


class Changed(NamedTuple):
    """One pair: the change, and its effect on output and key."""

    what: str
    is_other_output: bool
    is_other_key: bool
    #: The parts that ``lockcache why`` names, where the keys differ.
    named: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the key differs wherever the output does, and its parts say what changed."""
        return self.is_other_key >= self.is_other_output and bool(self.named) == self.is_other_key


class Outcome(NamedTuple):
    """A pair that was tried; ``changed`` is ``None`` where one of the two programs cannot be compiled."""

    what: str
    changed: Changed | None


def try_pairs(pairs: int, seed: int, show: Show) -> Iterator[Outcome]:
    """Try so many pairs, each change about as often as any other. Raises :class:`UnusableError` without NVRTC."""
    archs = need_archs("keys are compared with")
    rng = random.Random(f"{seed}/keys")
    changes = _changes(archs)
    lasting = [f"option {name}" for name in _LASTING]
    whats = [what for what in changes if what not in lasting]
    drawn = [whats[number % len(whats)] for number in range(pairs - len(lasting))] + lasting
    with tempfile.TemporaryDirectory(prefix="lockcache-keys-") as root:
        for number, what in enumerate(drawn, 1):
            show("compiling", number / len(drawn), what)
            before = _draw(rng, archs)
            yield Outcome(what, _compare(root, what, before, changes[what](rng, before)))


def _changes(archs: tuple[str, ...]) -> dict[str, Callable[[random.Random, _Program], _Program]]:
    """Returns the changes by name: each returns a changed copy of a program."""
    found: dict[str, Callable[[random.Random, _Program], _Program]] = {
        "code": lambda rng, one: replace(one, salt=one.salt + 1),
        "header": lambda rng, one: replace(one, header=one.header + "1"),
        "define FACTOR": lambda rng, one: replace(one, macros={**one.macros, "FACTOR": str(rng.randrange(9, 99))}),
        "define UNUSED": lambda rng, one: replace(one, macros={**one.macros, "UNUSED": str(rng.randrange(9, 99))}),
        "working directory": lambda rng, one: replace(one, folder="two"),
        "target": lambda rng, one: replace(one, target="ltoir" if one.target == "cubin" else "cubin"),
        "name expressions": lambda rng, one: replace(one, names=(*one.names, "scale<double>")),
    }
    for name in _VARIABLES:
        found[f"variable {name}"] = lambda rng, one, name=name: replace(  # type: ignore[misc]
            one, variables={**one.variables, name: "1"}
        )
    for name, values in {**_OPTIONS, **_LASTING}.items():
        # The option gets a value, gets another one, or is unset; the architecture always has one, since a key needs it.
        others = [value for value in values if value in archs] if name == "arch" else [None, *values]
        found[f"option {name}"] = lambda rng, one, name=name, others=others: replace(  # type: ignore[misc]
            one, fields={**one.fields, name: rng.choice([each for each in others if each != one.fields.get(name)])}
        )
    return found


def _draw(rng: random.Random, archs: tuple[str, ...]) -> _Program:
    """Returns a program with a few random options."""
    fields = draw_options(rng, archs)
    target = fields.pop("target")
    macros = {"FACTOR": str(rng.randrange(3, 9))} if rng.random() < 0.5 else {}
    return _Program(rng.randrange(2, 10**6), fields, macros, target=target)


def draw_options(rng: random.Random, archs: tuple[str, ...]) -> dict[str, Any]:
    """Returns a few random options, and the ``target``."""
    names = rng.sample([name for name in _OPTIONS if name != "arch"], rng.randrange(_MOST_OTHERS + 1))
    # Options that put the working directory into the output are drawn more often than the others.
    names += [name for name in ("debug", "lineinfo") if rng.random() < _DIRECTORY_SHARE]
    fields = {name: rng.choice(_OPTIONS[name]) for name in names}
    fields = {"arch": rng.choice(archs), **fields}
    return {**fields, "target": "ltoir"} if rng.random() < _LTOIR_SHARE else {**fields, "target": "cubin"}


def _compare(root: str, what: str, one: _Program, other: _Program) -> Changed | None:
    found, changed = (_compiled(root, each) for each in (one, other))
    if found is None or changed is None:
        return None
    (key, code), (other_key, other_code) = found, changed
    stated, other_stated = statement_of(key), statement_of(other_key)
    parts = [] if stated is None or other_stated is None else differences(stated.parts, other_stated.parts)
    return Changed(what, code != other_code, key != other_key, tuple(each.name for each in parts))


def _compiled(root: str, program: _Program) -> tuple[bytes, bytes] | None:
    """Returns the key and the output; ``None`` for a program that NVRTC or the cache refuses."""
    from cuda.core import ProgramOptions
    from cuda.core._utils.cuda_utils import CUDAError  # cuda.core has no public name for this class

    from lockcache.cuda import Program

    cache = _Recorder()
    with _surroundings(root, program) as include_path:
        fields = {"name": "k.cu", "include_path": include_path, **program.fields}
        if program.target == "ltoir":
            fields["link_time_optimization"] = True
        try:
            options = ProgramOptions(**fields, define_macro=[*program.macros.items()] or None)
            Program(_SOURCE.format(salt=program.salt), "c++", options).compile(
                program.target, program.names, cache=cache
            )
        except (CUDAError, RuntimeError, ValueError):
            return None  # two options exclude each other, or the output has no code
    return cache.seen


@contextmanager
def _surroundings(root: str, program: _Program) -> Iterator[str]:
    """Set the header, working directory and variables of the program. Yields the folder of its headers."""
    # A folder for each content, so that no file changes within a tick of the clock, which other tests are about.
    include_path, folder = (os.path.join(root, name) for name in (f"include{program.header}", program.folder))
    link = os.path.join(root, "include")
    for path in (include_path, folder):
        os.makedirs(path, exist_ok=True)
    if not os.path.exists(header := os.path.join(include_path, "x.h")):
        with open(header, "w") as file:
            file.write(f"#define FROM_HEADER {program.header}\n")
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(include_path, link)
    here, before = os.getcwd(), {name: os.environ.get(name) for name in program.variables}
    os.chdir(folder)
    os.environ.update(program.variables)
    try:
        yield link
    finally:
        os.chdir(here)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Recorder(InMemoryProgramCache):
    """An empty cache that remembers the key that something was stored under, and the compiled code."""

    seen: tuple[bytes, bytes] | None = None

    def put_entry(self, key: bytes | str, entry: Entry) -> None:
        """Put like any cache, and note the key and the code."""
        super().put_entry(key, entry)
        self.seen = (key.encode() if isinstance(key, str) else key, entry.code)
