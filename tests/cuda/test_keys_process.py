# SPDX-License-Identifier: Apache-2.0
"""make_program_cache_key with the real cuda.core: what the process, its directory and headers contribute."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

core = pytest.importorskip("cuda.core")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from lockcache.errors import UncacheableError  # noqa: E402
from tests.cuda.keys import COMPILE_SCRIPT, KEY_SCRIPT, SOURCE, compile_cxx, key, make_options, run_script  # noqa: E402

pytestmark = pytest.mark.cuda

# ---- what the process contributes ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "target_type, fields",
    [
        ("cubin", {"debug": True}),
        ("cubin", {"lineinfo": True}),
        ("ptx", {"debug": True}),
        ("ptx", {"lineinfo": True}),
        ("ltoir", {"link_time_optimization": True}),
        ("cubin", {}),
        ("ptx", {}),
        ("cubin", {"relocatable_device_code": True}),
    ],
)
def test_the_working_directory_changes_the_key_exactly_where_it_changes_the_output(
    target_type: str, fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bytes, bytes]] = []
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for directory, pwd in ((tmp_path, tmp_path), (real, real), (real, link)):
        monkeypatch.chdir(directory)
        monkeypatch.setenv("PWD", str(pwd))
        seen.append((compile_cxx(target_type, **fields), key(options=make_options(**fields), target_type=target_type)))
    outputs = {output for output, _ in seen}
    assert len({made for _, made in seen}) == len(outputs)
    assert len(outputs) == (3 if fields.keys() & {"debug", "lineinfo", "link_time_optimization"} else 1)


def test_a_pwd_that_is_not_the_working_directory_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = set()
    for pwd in ("", str(tmp_path), str(tmp_path / "missing"), os.getcwd()):
        monkeypatch.setenv("PWD", pwd)
        keys.add(key(target_type="ltoir"))
    assert len(keys) == 1


def test_a_removed_working_directory_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert len(key(target_type="ltoir")) == 32


@pytest.mark.long
@pytest.mark.parametrize(
    "variable, value, target_type, fields",
    [
        ("NV_NVVM_VERSION", "nvvm-latest", "cubin", {}),
        ("LLVM_OVERRIDE_PRODUCER", "someone", "ltoir", {"link_time_optimization": True}),
        ("FINALIZER_USE_LEGACY_ELF_BUILDER", "1", "cubin", {}),
    ],
)
def test_an_environment_variable_that_changes_the_output_changes_the_key(
    variable: str, value: str, target_type: str, fields: dict[str, Any]
) -> None:
    # In processes of their own: NVRTC looks at some of them only once.
    plain, changed = (
        run_script(COMPILE_SCRIPT, target_type, repr(fields), **environment) for environment in ({}, {variable: value})
    )
    assert plain[0] != changed[0], "this NVRTC no longer minds the variable"
    assert plain[1] != changed[1]


def test_the_key_is_the_same_in_every_process_whatever_the_hash_seed() -> None:
    here = key(name_expressions=["b", "a", b"a"], options=make_options(define_macro=["A", "B"])).hex()
    for seed in ("0", "1"):
        assert run_script(KEY_SCRIPT, PYTHONHASHSEED=seed) == [here]


# ---- headers and the clock -------------------------------------------------------------------------------------------

USE_FOO = 'extern "C" __global__ void k(int *a) { *a = FOO; }'


@pytest.mark.parametrize(
    "directive",
    [
        '#include "foo.h"',
        '#define H "foo.h"\n#include H',
        "#include <{directory}/foo.h>",
        '#if __has_include("foo.h")\n#include "foo.h"\n#endif',
    ],
)
def test_code_whose_output_follows_a_header_that_no_option_names_is_refused(
    directive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = directive.format(directory=tmp_path) + "\n" + USE_FOO
    outputs = set()
    for value in (7, 8):
        (tmp_path / "foo.h").write_text(f"#define FOO {value}\n")
        outputs.add(compile_cxx("ptx", code))
    assert len(outputs) == 2
    with pytest.raises(UncacheableError, match="extra_digest"):
        key(code=code)
    assert key(code=code, extra_digest=b"7") != key(code=code, extra_digest=b"8")


def test_headers_that_nvrtc_brings_along_need_no_extra_digest() -> None:
    code = "#include <cuda_fp16.h>\n" + SOURCE
    assert len(key(code=code, options=make_options(use_bundled_headers=True))) == 32
    quoted = '#include "cuda_fp16.h"\n' + SOURCE
    with pytest.raises(UncacheableError, match="working directory"):
        key(code=quoted, options=make_options(use_bundled_headers=True))
    assert len(key(code=quoted, options=make_options(use_bundled_headers=True, no_source_include=True))) == 32
