# SPDX-License-Identifier: Apache-2.0
"""Programs with headers that are moved: random texts, each of a kind that says whether it names its path.

The generator knows what the compiler sees of a path: nothing (the second place must be a hit), the paths of CCCL, or
something. A kind is a text of the first header and what goes with it; around it stand further headers, drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Names(Enum):
    """Whether anything active in a program names a path."""

    NOTHING = "nothing"
    CCCL = "CCCL"
    PATHS = "its path"


class Kind(NamedTuple):
    """One kind of content: the first header, which defines ``f``."""

    names: Names
    header: str
    fields: Mapping[str, Any] = MappingProxyType({})
    #: In front of the source.
    source: str = ""
    #: How much more often than once in a round it is drawn.
    weight: float = 1.0


_PLAIN: Final = "static __device__ int f(const int *p) {{ return {salt}; }}\n"
_PASTE: Final = "#define PASTE(a, b) a##b\n"
_NUMBER: Final = "static __device__ int f(const int *p) {{ return {salt} + %s; }}\n"
_TEXT: Final = "static __device__ int f(const int *p) {{ const char *text = %s; return {salt} + text[*p]; }}\n"
_CHECKED: Final = "static __device__ int f(const int *p) {{ assert(*p > {salt}); return *p; }}\n"
_SPAN: Final = (
    "#include <cuda/std/span>\n"
    "static __device__ int f(int *p) {{ cuda::std::span<int> s(p, {salt}); return s[p[9]]; }}\n"
)
_ARRAY: Final = (
    "#include <cuda/std/array>\n"
    "static __device__ int f(int *p) {{ cuda::std::array<int, 9> s{{}}; s[2] = {salt}; return s[p[9] & 7]; }}\n"
)
_CUB: Final = (
    "#include <cub/block/block_reduce.cuh>\n"
    "static __device__ int f(int *p) {{ using R = cub::BlockReduce<int, 64>; __shared__ R::TempStorage t;\n"
    "  return R(t).Sum(p[threadIdx.x] + {salt}); }}\n"
)
_ON: Final = {"define_macro": ["CCCL_ENABLE_ASSERTIONS"], "std": "c++17"}
_FREE, _PATHS = Names.NOTHING, Names.PATHS

KINDS: Final[dict[str, Kind]] = {
    "nothing": Kind(_FREE, _PLAIN, weight=6),
    "a comment": Kind(_FREE, "// as __FILE__ says, don't ask\n/* __FILE__\n __builtin_FILE() */\n" + _PLAIN, weight=2),
    "a comment behind code": Kind(_FREE, _PLAIN.rstrip() + " // __FILE__ /* */\nstruct a_type; /* __FILE__ */\n"),
    "a name in a text": Kind(_FREE, 'static_assert(true, "__FIL" "E__");\n' + _PLAIN),
    "pasted words": Kind(_FREE, _PASTE + "static __device__ int PASTE(, f)(const int *p) {{ return {salt}; }}\n"),
    "internal linkage": Kind(
        _FREE,
        "namespace {{ __device__ int v[9]; __device__ __noinline__ int g(int x) {{ return v[x]; }} }}\n"
        "static __device__ int w[9];\n"
        "static __device__ int f(const int *p) {{ v[*p] = {salt}; w[*p] = 4; return g(*p) + w[*p + 1]; }}\n",
        weight=2,
    ),
    "a lambda's name": Kind(
        _FREE,
        "template <class T> __device__ __noinline__ const char *g(T) {{ return __PRETTY_FUNCTION__; }}\n"
        "static __device__ int f(const int *p) {{ return g([](int x) {{ return x; }})[*p] + {salt}; }}\n",
    ),
    "static locals": Kind(
        _FREE, "inline __device__ int f(const int *p) {{ static int z[4]; return z[*p]++ + {salt}; }}\n"
    ),
    "#line": Kind(_FREE, '#line {salt} "elsewhere.h"\n' + _NUMBER % "__LINE__"),
    "__has_include": Kind(_FREE, "#if __has_include(<absent.h>) || !__has_include(<h0.h>)\n#error\n#endif\n" + _PLAIN),
    "#include_next": Kind(_FREE, "#include_next <next.h>\n" + _PLAIN),
    "#include of a macro": Kind(_FREE, "#define PLACE <next.h>\n#include PLACE\n" + _PLAIN),
    "an assertion that is off": Kind(_FREE, "#ifdef NEVER\n" + _CHECKED + "#else\n" + _PLAIN + "#endif\n"),
    "bundled headers": Kind(
        _FREE,
        "#include <cuda_fp16.h>\n"
        "static __device__ int f(const int *p) {{ return __half2int_rn(__hmul((__half)*p, (__half){salt})); }}\n",
        {"use_bundled_headers": True},
        weight=0.5,
    ),
    "an assertion": Kind(_PATHS, _CHECKED),
    "an assertion in a macro": Kind(_PATHS, "#define CHECK(x) assert(x)\n" + _CHECKED.replace("assert", "CHECK")),
    "__FILE__": Kind(_PATHS, _TEXT % "__FILE__"),
    "sizeof(__FILE__)": Kind(_PATHS, _NUMBER % "sizeof(__FILE__)"),
    "__FILE__ in the source": Kind(_PATHS, _PLAIN, source="__device__ int size = sizeof(__FILE__);\n"),
    "__builtin_FILE()": Kind(_PATHS, _TEXT % "__builtin_FILE()"),
    "__FILE__ behind a macro": Kind(_PATHS, "#define WHERE __FILE__\n" + _NUMBER % "sizeof(WHERE)"),
    "__FILE__ in an option": Kind(_PATHS, _NUMBER % "sizeof(PLACE)", {"define_macro": ["PLACE=__FILE__"]}),
    "__FILE__ as a text": Kind(_PATHS, "#define S(x) #x\n#define T(x) S(x)\n" + _NUMBER % "sizeof(T(__FILE__))"),
    "pasted __FILE__": Kind(_PATHS, _PASTE + _NUMBER % "sizeof(PASTE(__FI, LE__))"),
    "__FILE__ of three": Kind(_PATHS, "#define PASTE(a, b, c) a##b##c\n" + _NUMBER % "sizeof(PASTE(__, FI, LE__))"),
    "spliced __FILE__": Kind(_PATHS, _NUMBER % "sizeof(__FI\\\nLE__)"),
    "__FILE__ behind a raw text": Kind(
        _PATHS, 'static __device__ const char *r = R"(")" "/*";\n' + _NUMBER % "sizeof(__FILE__)" + "/* */\n"
    ),
    "__FILE__ behind a quote": Kind(
        _PATHS, 'static __device__ const int q = L\'"\' + sizeof("/*");\n' + _NUMBER % "sizeof(__FILE__)" + "/* */\n"
    ),
    "an assertion that measures": Kind(
        _PATHS,
        "#define __assertfail(a, b, ...) (void)(q = sizeof(b))\n"
        "static __device__ int f(const int *p) {{ int q = {salt}; assert(*p > 3); return q; }}\n",
    ),
    "a header made like CCCL's": Kind(
        _PATHS, "#if defined(_CCCL_IMPLICIT_SYSTEM_HEADER_GCC)\n#endif\n" + _NUMBER % "sizeof(__FILE__)"
    ),
    "span": Kind(Names.CCCL, _SPAN, {"std": "c++17"}, weight=0.3),
    "span, checked": Kind(Names.CCCL, _SPAN, _ON, weight=0.3),
    "array": Kind(Names.CCCL, _ARRAY, {"std": "c++17"}, weight=0.3),
    "array, checked": Kind(Names.CCCL, _ARRAY, _ON, weight=0.2),
    "cub": Kind(Names.CCCL, _CUB, {"std": "c++17"}, weight=0.1),
}

_MOST_FOLDERS: Final = 3
_MOST_HEADERS: Final = 4


@dataclass(frozen=True)
class Moving:
    """A program and its headers, without a place."""

    kind: str
    source: str
    #: Texts by path, below the place.
    files: dict[str, str]
    #: Links within the place: where each leads.
    links: dict[str, str]
    #: The searched directories, in order, below the place.
    folders: list[str]
    #: What is included in front: names as searched, or paths below the place that begin with a slash.
    forced: list[str]
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """Whether anything active names a path."""
        return KINDS[self.kind].names


def draw(rng: random.Random, kind: str) -> Moving:
    """Returns a program of this kind: the header that makes it one, up to three others, and who includes whom."""
    what, salt = KINDS[kind], rng.randrange(10, 10**6)
    folders = [f"d{number}" for number in range(rng.randint(1, _MOST_FOLDERS))]
    homes = [rng.choice(folders) for _ in range(rng.randint(1, _MOST_HEADERS))]
    # Behind the first header: what #include_next finds.
    homes[0] = folders[0]
    files = {f"{home}/h{number}.h": "" for number, home in enumerate(homes)}
    for number, path in enumerate(files):
        text = what.header.format(salt=salt) if not number else f"#define VALUE{number} {salt + number}\n"
        files[path] = _guarded(rng, number, _include(rng, number, len(homes)) + text)
    files[f"{folders[-1]}/next.h"] = "#pragma once\n"
    links = {f"{folders[0]}/alias.h": "h0.h"} if rng.random() < 0.2 else {}
    forced = [rng.choice(["h0.h", f"/{folders[0]}/h0.h"])] if rng.random() < 0.2 else []
    included = "".join(f"#include {_spelled(rng, name)}\n" for name in ["h0.h", *(["alias.h"] if links else [])])
    kernel = 'extern "C" __global__ void k(int *p) { *p = f(p); }\n'
    return Moving(kind, included + what.source + kernel, files, links, folders, forced, dict(what.fields))


def _include(rng: random.Random, number: int, count: int) -> str:
    """Returns directives for some of the later headers; the first includes at least the second."""
    later = [each for each in range(number + 1, count) if each == 1 or rng.random() < 0.5]
    return "".join(f"#include {_spelled(rng, f'h{each}.h')}\n" for each in later)


def _spelled(rng: random.Random, name: str) -> str:
    return rng.choice([f'"{name}"', f"<{name}>"])


def _guarded(rng: random.Random, number: int, text: str) -> str:
    # Both: an alias is another file to NVRTC where #pragma once does not say that it is the same.
    once = "#pragma once\n" if rng.random() < 0.5 else ""
    return f"{once}#ifndef H{number}\n#define H{number}\n{text}#endif\n"
