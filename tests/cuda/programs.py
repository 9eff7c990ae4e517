# SPDX-License-Identifier: Apache-2.0
"""The programs that tests of lockcache.cuda.Program compile."""

from __future__ import annotations

from cuda.core import ProgramOptions

PLAIN = 'extern "C" __global__ void k(int *p) { *p = 1; }'
TEMPLATE = "template <typename T> __global__ void k(T *p) { *p = T(1); }"
NAMES = ("k<int>", "k<float>")
NVVM = """
target triple = "nvptx64-unknown-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @k(i32* %p) { store i32 1, i32* %p
ret void }
!nvvm.annotations = !{!0}
!0 = !{void (i32*)* @k, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0, i32 3, i32 1}
"""  # noqa: E501


def options(**more: object) -> ProgramOptions:
    return ProgramOptions(arch="sm_90", **more)
