# SPDX-License-Identifier: Apache-2.0
"""Artifacts by the first bytes of a payload: real headers, and bytes that only look like them."""

from __future__ import annotations

import pytest
from cuda.core import Program, ProgramOptions
from hypothesis import given, strategies as st

from lockcache.artifact import Artifact, identify

# The first 64 bytes of cubins as NVRTC 12.4.127 and 12.9.86 wrote them: compilers of that time are not a dependency.
_COMMON = "7f454c4602010133070000000000000002 00be007c000000 0000000000000000"
OLD = {
    "sm_70": f"{_COMMON} 400f000000000000 800b000000000000 46054600 40003800030040000f000100",
    "sm_90": f"{_COMMON} b810000000000000 380d000000000000 5a055a00 40003800040040000e000100",
    "sm_90a": f"{_COMMON} b810000000000000 380d000000000000 5a0d5a00 40003800040040000e000100",
}
NEW_SM_100 = (
    "7f454c4602010141080000000000000002 00be0001000000 0000000000000000 d01d000000000000 1017000000000000 02640006"
    "40003800050040001b000100"
)
NOTE = b"\0ptxas\0Cuda compilation tools, release 12.9, V12.9.86\0Build\0-arch %s \0"


@pytest.mark.parametrize("arch", OLD)
def test_a_cubin_of_the_old_abi_tells_architecture_and_toolkit(arch: str) -> None:
    assert identify(bytes.fromhex(OLD[arch])) == Artifact("cubin", arch, "cuda 12.4")


@pytest.mark.parametrize("noted, arch", [(b"sm_100", "sm_100"), (b"sm_100a", "sm_100a"), (b"sm_90", "sm_100")])
def test_a_cubin_of_the_new_abi_tells_its_variant_by_its_note_if_that_speaks_of_it(noted: bytes, arch: str) -> None:
    assert identify(bytes.fromhex(NEW_SM_100) + NOTE % noted) == Artifact("cubin", arch, "cuda 12.9.86")


def test_a_cubin_without_a_note_has_no_compiler() -> None:
    assert identify(bytes.fromhex(NEW_SM_100)) == Artifact("cubin", "sm_100")


def test_ptx_is_known_by_its_version_and_target() -> None:
    text = b"// Cuda compilation tools, release 13.5, V13.5.37\n\n.version 9.5\n.target sm_90a, debug\n"
    assert identify(text) == Artifact("ptx", "sm_90a", "cuda 13.5.37")
    assert identify(text + b".visible .entry scale(\n)\n.func helper\n").kernels == ("scale",)


def test_a_cubin_tells_its_kernels_and_not_its_functions() -> None:
    source = """
    __device__ __noinline__ float square(float x) { return x * x; }
    extern "C" __global__ void empty() {}
    extern "C" __global__ void scale(float *x) { *x = square(*x); }
    """
    for arch in ("sm_75", "sm_90", "sm_120"):
        code = Program(source, "c++", ProgramOptions(arch=arch)).compile("cubin").code
        assert sorted(identify(code).kernels) == ["empty", "scale"]


@pytest.mark.parametrize(
    "head, kind",
    [(b"\xedCN\x7f", "ltoir"), (b"\x50\xed\x55\xba", "fatbin"), (b"BC\xc0\xde", "llvm-bitcode"), (b"\x7fELF", "elf")],
)
def test_other_kinds_are_known_by_their_magic(head: bytes, kind: str) -> None:
    assert identify(head + bytes(100)) == Artifact(kind)


@pytest.mark.parametrize("payload", [b"", b"hello", b".version", b".target sm_90", bytes(1000)])
def test_what_is_not_recognised_is_nothing(payload: bytes) -> None:
    assert identify(payload) == Artifact()


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\x7fELF\x02\x01", bytes.fromhex(OLD["sm_70"]), b".version 9.5\n"])
)
def test_any_bytes_give_short_printable_answers(tail: bytes, head: bytes) -> None:
    *answers, kernels = identify(head + tail)
    for answer in (*answers, *kernels):
        assert answer is None or (answer.isascii() and answer.isprintable() and len(answer) < 201)
