# SPDX-License-Identifier: Apache-2.0
"""make_program_cache_key with the real cuda.core: PTX, NVVM, and the versions of compilers."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

core = pytest.importorskip("cuda.core")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from lockcache.errors import UncacheableError  # noqa: E402
from lockcache.keys import linking, versions  # noqa: E402
from tests.cuda.keys import CXX, NVVM, SOURCE, key, make_options  # noqa: E402
from tests.started_with import start_with  # noqa: E402

pytestmark = pytest.mark.cuda

# ---- PTX and NVVM ----------------------------------------------------------------------------------------------------

PTX_VALUES: dict[str, Any] = {
    "arch": "sm_90a",
    "debug": True,
    "lineinfo": True,
    "max_register_count": 32,
    "ptxas_options": "-O1",
    "ftz": True,
    "prec_div": False,
    "prec_sqrt": False,
    "fma": False,
    "split_compile": 2,
    "no_cache": True,
    "link_time_optimization": True,
    "time": "time.csv",
    "name": "other",
}


def link(code: str, **fields: Any) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # numba_debug: cuda.core says that it ignores it
        return bytes(core.Program(code, "ptx", make_options(**fields)).compile("cubin").code)


def ptx_key(code: str, **fields: Any) -> bytes:
    return key(code=code, code_type="ptx", options=make_options(**fields))


@pytest.mark.parametrize("field", sorted(PTX_VALUES))
def test_an_option_that_the_linker_gets_changes_the_key(field: str, ptx_text: str) -> None:
    assert ptx_key(ptx_text, **{field: PTX_VALUES[field]}) != ptx_key(ptx_text)
    assert set(PTX_VALUES) | {"extra_sources"} == linking.FIELDS


@pytest.mark.parametrize("field", sorted(set(CXX) - linking.FIELDS))
def test_an_option_that_is_not_in_the_key_of_ptx_does_not_change_what_is_linked(field: str, ptx_text: str) -> None:
    changed = {field: CXX[field][1]}
    assert ptx_key(ptx_text, **changed) == ptx_key(ptx_text)
    assert link(ptx_text, **changed) == link(ptx_text)


def test_the_working_directory_does_not_change_what_is_linked(
    ptx_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = link(ptx_text, lineinfo=True), ptx_key(ptx_text, lineinfo=True)
    monkeypatch.chdir(tmp_path)
    assert (link(ptx_text, lineinfo=True), ptx_key(ptx_text, lineinfo=True)) == before


def test_name_expressions_change_the_key_only_for_cxx(ptx_text: str) -> None:
    assert key(code=ptx_text, code_type="ptx", name_expressions=["f"]) == ptx_key(ptx_text)


def nvvm_key(target_type: str = "ptx", code: str | bytes | bytearray = NVVM, **fields: Any) -> bytes:
    return key(code=code, code_type="nvvm", target_type=target_type, options=make_options(**fields))


def compile_nvvm(target_type: str, **fields: Any) -> bytes:
    return bytes(core.Program(NVVM, "nvvm", make_options(**fields)).compile(target_type).code)


@pytest.mark.parametrize(
    "fields",
    [
        {"arch": "sm_80"},
        {"name": "other"},
        {"ftz": True},
        {"prec_div": False},
        {"fma": False},
        {"device_code_optimize": False},
        {"debug": True},
        {"extra_sources": [("more", NVVM.replace("simple", "other"))]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_option_that_libnvvm_gets_changes_the_key(fields: dict[str, Any]) -> None:
    for target_type in ("ptx", "ltoir"):
        if compile_nvvm(target_type, **fields) != compile_nvvm(target_type):
            assert nvvm_key(target_type, **fields) != nvvm_key(target_type)
    assert nvvm_key(**fields) != nvvm_key()


def test_nvvm_code_is_the_same_as_str_bytes_and_bytearray() -> None:
    text = NVVM.encode()
    assert nvvm_key() == nvvm_key(code=text) == nvvm_key(code=bytearray(text))
    assert nvvm_key(extra_sources=[("a", NVVM)]) == nvvm_key(extra_sources=(("a", text),))
    assert nvvm_key(extra_sources=[("a", "b"), ("c", "d")]) != nvvm_key(extra_sources=[("c", "d"), ("a", "b")])


def test_an_option_that_libnvvm_lacks_is_the_error_that_compiling_gives() -> None:
    with pytest.raises(Exception, match="not supported by NVVM") as compiling:
        compile_nvvm("ptx", lineinfo=True)
    with pytest.raises(type(compiling.value), match="not supported by NVVM"):
        nvvm_key(lineinfo=True)


def test_the_code_generator_that_the_environment_picks_changes_the_key_of_nvvm(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_nvvm("ptx"), nvvm_key()
    start_with(monkeypatch, LIBNVVM_NVVM_VERSION="nvvm-latest")
    changed = compile_nvvm("ptx"), nvvm_key()
    assert plain[0] != changed[0]
    assert plain[1] != changed[1]


def test_the_libdevice_that_is_linked_is_in_the_key_by_its_content(tmp_path: Path, monkeypatch) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    copy = tmp_path / "libdevice.10.bc"
    shutil.copy(pathfinder.find_bitcode_lib("device"), copy)
    fields = {"code": NVVM, "code_type": "nvvm", "target_type": "ptx"}
    plain, linked = key(**fields, options=make_options()), key(**fields, options=make_options(use_libdevice=True))
    assert plain != linked
    # A stand-in for an upgraded toolkit: pathfinder remembers where the library lies.
    monkeypatch.setattr(pathfinder, "find_bitcode_lib", lambda name: str(copy))
    assert key(**fields, options=make_options(use_libdevice=True)) == linked
    with open(copy, "ab") as file:
        file.write(b"\0")
    assert key(**fields, options=make_options(use_libdevice=True)) != linked
    assert b"libdevice" in versions.libdevice()


# ---- compiler versions -----------------------------------------------------------------------------------------------


def test_each_compiler_is_known_by_version_and_build() -> None:
    assert len({versions.nvrtc(), versions.nvvm(), versions.linker()}) == 3


def test_a_compiler_without_a_version_has_no_key_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in: the real thing needs an installation without NVRTC.
    def missing() -> None:
        raise RuntimeError("no NVRTC here")

    before = key()
    with monkeypatch.context() as patched:
        patched.setattr(versions, "_loaded", None)
        patched.setattr(nvrtc, "nvrtcVersion", missing)
        with pytest.raises(UncacheableError, match="no NVRTC here"):
            key()
    assert key() == before


def test_the_key_sees_the_options_that_program_compiles_with(plain_cubin: bytes) -> None:
    assert core.Program(SOURCE, "c++", make_options()).compile("cubin").code == plain_cubin
