# SPDX-License-Identifier: Apache-2.0
"""Parts of the frameworks' keys: each framework states some, in its words, from what its adapter was given.

The frameworks' objects are stand-ins here; tests/frameworks/test_why.py asks the frameworks themselves.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

import lockcache.integrations
from lockcache.explain import Hashed, differences, make_part
from lockcache.integrations.environment import FRAMEWORKS
from lockcache.integrations.framework_keys import Request, SharedKey
from lockcache.integrations.inductor.graph_keys import GraphKeys, note_graph_keys
from lockcache.integrations.key_parts import (
    parts_of_cupy,
    parts_of_cute,
    parts_of_cutile,
    parts_of_extension,
    parts_of_graph,
    parts_of_helion,
    parts_of_jax,
    parts_of_launcher,
    parts_of_numba,
    parts_of_triton,
    parts_of_warp,
)

ADAPTERS = Path(lockcache.integrations.__file__).parent
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "frameworks.md"

#: Modules with look-ups that cannot say what their keys are made of, each with the reason.
SILENT: Final[dict[str, str]] = {}
#: The rows of the table in the guide.
ROWS: Final = {
    "cpp_extension": "C++ extensions of torch, FlashInfer",
    "cupy": "CuPy",
    "cute": "CuTe DSL",
    "cutile": "cuTile",
    "flashinfer": "C++ extensions of torch, FlashInfer",
    "helion": "Helion",
    "inductor": "Inductor",
    "jax": "JAX",
    "numba": "numba-cuda, numba-cuda-mlir",
    "numba_mlir": "numba-cuda, numba-cuda-mlir",
    "triton": "Triton",
    "warp": "Warp",
}


def cupy(source: str = "code", define: str = "-DN=1", folder: str = "/home/me/include") -> dict[str, object]:
    request = Request(source, (define, "--std=c++17", f"-I{folder}"), "nvrtc", ("f<int>",), False, True, False)
    text = f"('90', {request.options!r}, (13, 5), 'nvrtc', '-arch=sm_90', 'cubin')  {source} None 87417f5d"
    return parts_of_cupy(request, SharedKey(f"own/placed.cubin/{folder}", has_paths=True), text.encode())


def cute(code: bytes = b"traced", level: int = 3) -> dict[str, object]:
    pipeline = f"builtin.module(cute-to-nvvm{{opt-level={level} rdc=false cubin-chip=sm_90a}})"
    return parts_of_cute("host", code, pipeline, ("sm_90a",), {"enable_verifier": False, "warnings_filter": ""})


def cutile(code: bytes = b"bytecode", sm_arch: str = "sm_90") -> dict[str, object]:
    given = {"compiler_version": "13.1", "opt_level": 3, "device_debug": False, "preview_features": ()}
    return parts_of_cutile("f", {**given, "sm_arch": sm_arch, "bytecode": code, "linker_inputs": [("digest", "1.2")]})


def cpp_extension(code: str = "int f();", compiler: str = "g++ 13") -> dict[str, object]:
    steps = {"main.o": code, "my.so": "-lc"}
    return parts_of_extension({"system": "linux", "torch": "2.13", "compiler": compiler, "environment": "", **steps})


def flashinfer(code: str = "int f();", wheel: str = "a digest") -> dict[str, object]:
    return parts_of_extension({"system": "linux", "FlashInfer": wheel, "compiler": "g++ 13", "main.o": code})


@dataclasses.dataclass(frozen=True)
class HelionKey:
    specialization_key: tuple[object, ...] = ((4, 4), "cuda")
    kernel_source_hash: str = "5f"
    hardware: str = "H100"


def helion(code: str = "5f", hardware: str = "H100") -> dict[str, object]:
    return parts_of_helion(HelionKey(kernel_source_hash=code, hardware=hardware))


def inductor(graph: str = "aa", size: int = 4, max_autotune: bool = True) -> dict[str, object]:
    tensor = (
        f"TensorMetadata(dtype=torch.float32, shape=torch.Size([{size}, 8]), stride=(8, 1), device=device(type='cpu'))"
    )
    lines = [
        f"[{graph}] gm: <lambda>()\n\n\n\ndef forward(self, x):\n    return x",
        f"[{size:02}] example_inputs[0]: {tensor}",
        "[bb] fx_kwargs[is_backward]: False",
        "[cc] fx_kwargs[get_decomp_fn]: <function select at 0x7f>",
        "[dd] system_info[hash]: 44136fa3",
        f"[{max_autotune}] inductor_config[max_autotune]: {max_autotune}",
        "[ee] inductor_config[trace.debug_dir]: /home/me/debug",
        "[ff] inductor_config_comms[limit]: 0.5",
        "[ab] default_dtype: torch.float32",
    ]
    return parts_of_graph(lines, lambda name, value: (name, value) == ("max_autotune", "False"))


def jax(code: str = "module", replicas: int = 1) -> dict[str, object]:
    options = SimpleNamespace(num_replicas=replicas, num_partitions=1, env_option_overrides=[("dump", "/home/me/x")])
    backend = SimpleNamespace(platform="cuda", platform_version="PJRT 1")
    devices = SimpleNamespace(flat=[SimpleNamespace(device_kind="H100")] * 2)
    given = {"module": code, "devices": devices, "compile_options": options, "backend": backend}
    return parts_of_jax("jit_f", {**given, "ignore_callbacks": 1}, "avx512")


def function_one(x: Any) -> Any:
    return x + 1


def function_two(x: Any) -> Any:
    return x + 2


def numba(function: Callable[[Any], Any] = function_one, fastmath: bool = True) -> dict[str, object]:
    dispatcher = SimpleNamespace(py_func=function, targetoptions={"fastmath": fastmath, "link": (), "debug": False})
    types = ("array(float32, 1d, C)", "int64")
    return parts_of_numba("module.f-3.py311.nbi", (types, ((13, 5), (9, 0))), dispatcher, [("OPT", "3")], "builds")


@dataclasses.dataclass
class TritonOptions:
    num_warps: int = 4
    num_stages: int = 3
    fused: bool = True
    extern_libs: tuple[object, ...] = (("libdevice", "/home/me/libdevice.bc"),)

    def hash(self) -> str:
        return str(self)


def triton(source: str = "def kernel(): 1", block: int = 64, warps: int = 4) -> dict[str, object]:
    function = SimpleNamespace(src=source, cache_key=f"{source} and {block}", arg_names=["p", "BLOCK"])
    signature = {"p": "*fp32", "BLOCK": "constexpr"}
    asked = SimpleNamespace(
        fn=function,
        signature=signature,
        constants={(1,): block},
        attrs={(0,): [["tt.divisibility", 16]]},
        name="kernel",
    )
    target = SimpleNamespace(backend="cuda", arch=90)
    backend = SimpleNamespace(target=target, hash=lambda: "ptxas: release 13.1, V13.1.80\n-90")
    return parts_of_triton(asked, backend, TritonOptions(num_warps=warps))


def warp(kernel: bytes = b"\1", mode: str = "release") -> dict[str, object]:
    kernels = {kernel: SimpleNamespace(key="saxpy")}
    module = SimpleNamespace(name="unique_0123abcd", hashers={256: SimpleNamespace(unique_kernels=kernels)})
    options = {"block_dim": 256, "mode": mode, "cpu_compiler_flags": "-I/home/me"}
    return parts_of_warp(module, options, None, False, "avx512")


#: Of each framework: the parts of a key, of one with other code, and of one with another option, with that part's name.
SAMPLES: Final[dict[str, tuple[Callable[..., dict[str, object]], dict[str, Any], dict[str, Any], list[str]]]] = {
    "cpp_extension": (cpp_extension, {"code": "int g();"}, {"compiler": "clang++ 19"}, ["compiler"]),
    "flashinfer": (flashinfer, {"code": "int g();"}, {"wheel": "another"}, ["FlashInfer"]),
    "cupy": (cupy, {"source": "another"}, {"define": "-DN=2"}, ["define N"]),
    "cute": (cute, {"code": b"another"}, {"level": 2}, ["option opt-level"]),
    "cutile": (cutile, {"code": b"another"}, {"sm_arch": "sm_100"}, ["sm arch"]),
    "helion": (helion, {"code": "60"}, {"hardware": "B200"}, ["hardware"]),
    "inductor": (inductor, {"graph": "zz"}, {"size": 16}, ["inputs"]),
    "jax": (jax, {"code": "another"}, {"replicas": 2}, ["option num_replicas"]),
    "numba": (numba, {"function": function_two}, {"fastmath": False}, ["option fastmath"]),
    "numba_mlir": (numba, {"function": function_two}, {"fastmath": False}, ["option fastmath"]),
    "triton": (triton, {"source": "def kernel(): 2"}, {"warps": 8}, ["option num_warps"]),
    "warp": (warp, {"kernel": b"\2"}, {"mode": "debug"}, ["option mode"]),
}
# With the code these change too, and are named.
WITH_CODE: Final = {"warp": ["kernel saxpy"]}


@pytest.fixture(autouse=True)
def stubbed_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's module of keys, as far as the adapter asks it."""
    stub = ModuleType("jax._src.cache_key")
    stub.jaxlib_version_str = "0.10.2"  # type: ignore[attr-defined]
    stub._hash_computation = lambda digest, module, ignored: digest.update(module.encode())  # type: ignore[attr-defined]
    stub._hash_serialized_compile_options = lambda digest, options, strips: digest.update(  # type: ignore[attr-defined]
        str(options).encode()
    )
    stub._hash_xla_flags = lambda digest, prefixes: None  # type: ignore[attr-defined]
    for name, module in (("jax", ModuleType("jax")), ("jax._src", ModuleType("jax._src")), (stub.__name__, stub)):
        monkeypatch.setitem(sys.modules, name, module)


def as_parts(values: dict[str, object]) -> list[Any]:
    return [make_part(name, repr(value).encode(), str(value)) for name, value in values.items()]


def named(mine: dict[str, object], other: dict[str, object]) -> list[str]:
    return [each.name for each in differences(as_parts(mine), as_parts(other))]


def test_every_framework_states_parts() -> None:
    assert SAMPLES.keys() == ROWS.keys() == FRAMEWORKS.keys(), "a framework is missing in these tests"


@pytest.mark.parametrize("framework", SAMPLES)
def test_other_code_is_named_alone_and_so_is_another_option(framework: str) -> None:
    parts_of, code, option, names = SAMPLES[framework]
    assert named(parts_of(), parts_of()) == []
    assert named(parts_of(**code), parts_of()) == ["code", *WITH_CODE.get(framework, [])]
    assert named(parts_of(**option), parts_of()) == names


@pytest.mark.parametrize("framework", SAMPLES)
def test_values_are_texts_numbers_and_digests_without_an_address_or_a_path(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_HOME", "/home/me")
    monkeypatch.setenv("LLVM_OVERRIDE_PRODUCER", "/home/me")
    parts = SAMPLES[framework][0]()
    assert {type(value) for value in parts.values()} <= {str, int, bool, Hashed}
    shown = [part.value for part in as_parts(parts)]
    assert [value for value in shown if "/home" in value or " at 0x" in value] == []
    assert any(shown), "and something is shown"


@pytest.mark.parametrize("framework", SAMPLES)
def test_the_guide_names_the_parts_that_each_framework_states(framework: str) -> None:
    listed = re.findall(r"`([^`]+)`", row_of(ROWS[framework]))
    prefixes = tuple(name.removesuffix("...") for name in listed if name.endswith("..."))
    stated = [*SAMPLES[framework][0](), *(parts_of_launcher("key", "launcher.so") if framework == "triton" else ())]
    if framework == "inductor":
        stated.remove("default dtype")  # one of torch's own names
    assert [name for name in stated if name not in listed and not name.startswith(prefixes or "\0")] == []


def row_of(title: str) -> str:
    """Returns the parts in the row of the guide's table. Fails where there is no such row."""
    section = GUIDE.read_text().partition("## Why a kernel was compiled")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith(f"| {title} |")]
    assert len(rows) == 1, f"the guide has no row for {title}"
    return rows[0][2]


def test_every_look_up_of_an_adapter_says_what_the_key_is_made_of() -> None:
    silent, seen = {}, 0
    for path in sorted(ADAPTERS.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if compiles_at_a_miss(call):
                seen += 1
                if len(call.args) < 3 and not any(word.arg == "parts" for word in call.keywords):
                    silent[path.relative_to(ADAPTERS).as_posix()] = call.lineno
    assert seen > len(FRAMEWORKS)
    assert silent.keys() == SILENT.keys(), silent


def compiles_at_a_miss(call: ast.AST) -> Any:
    """Returns whether this looks a key up, and what is missing is compiled: ``look`` has a label then."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    method, owner = call.func.attr, ast.unparse(call.func.value)
    return owner.endswith("shared") and (
        method in ("look_up", "begin_files") or (method == "look" and len(call.args) + len(call.keywords) > 1)
    )


def test_the_lines_of_a_graph_are_taken_once_and_by_the_key_that_has_them() -> None:
    module = SimpleNamespace(compiled_fx_graph_hash=lambda graph: (f"f{graph}", [f"[{graph}] gm: f"]))
    keys = note_graph_keys(module)
    assert module.compiled_fx_graph_hash(1) == ("f1", ["[1] gm: f"])
    assert keys.parts_of("pt2:f1::c5")().keys() >= {"code", "inputs"}
    assert keys.parts_of("pt2:f1::c5")() == {}
    module.compiled_fx_graph_hash(2)
    assert keys.parts_of("pt2:another")() == {}
    assert isinstance(note_graph_keys(SimpleNamespace()), GraphKeys), "in a torch without"
