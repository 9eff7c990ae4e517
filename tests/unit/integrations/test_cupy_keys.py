# SPDX-License-Identifier: Apache-2.0
"""Keys of CuPy's kernels: paths are in them where the output can tell them, and what more than NVRTC reads has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache.integrations.framework_keys import Request, SharedKey, shared_key
from lockcache.keys import variable_names
from tests.started_with import start_with

SOURCE = '#include "scale.h"\nextern "C" __global__ void kernel(int *p) { *p = SCALE; }\n'


class User:
    """The folders of a user: headers of the project, and an environment with CuPy's own."""

    def __init__(self, home: Path) -> None:
        self.headers, self.package = home / "project/include", home / "venv/cupy"
        self.package.joinpath("_core/include/cupy").mkdir(parents=True)
        self.headers.mkdir(parents=True)
        self.header = self.headers / "scale.h"
        self.header.write_text("#define SCALE 7\n")

    def key(self, *options: str, source: str = SOURCE, is_ltoir: bool = False, **others: object) -> SharedKey:
        """Returns the key of a kernel, as CuPy asks for it: its folders are the last options."""
        given = (*options, f"-I{self.headers}", f"-I{self.package}/_core/include")
        asked = {"backend": "nvrtc", "name_expressions": (), "is_jitified": False, "is_precompiled": False, **others}
        request = Request(source, given, is_ltoir=is_ltoir, **asked)  # type: ignore[arg-type]
        text = f"('90', {given!r}, (13, 5), 'nvrtc', '-arch=sm_90', 'cubin')  {source} None 87417f5d"
        return shared_key(request, text.encode(), str(self.package), None)


@pytest.fixture
def users(tmp_path: Path) -> tuple[User, User]:
    return User(tmp_path / "one"), User(tmp_path / "other")


def test_two_users_have_one_key_and_another_header_is_another(users: tuple[User, User]) -> None:
    one, other = users
    assert one.key().name == other.key().name != ""
    assert not one.key().has_paths
    before = one.key().name
    one.header.write_text("#define SCALE 8\n")
    assert one.key().name not in ("", before)


TELLING = {
    "the name of the file": ((), "const char *f = __FILE__;\n" + SOURCE, False),
    "line information": (("-lineinfo",), SOURCE, False),
    "line information by its long name": (("--generate-line-info",), SOURCE, False),
    "debug information": (("-G",), SOURCE, False),
    "debug information by its long name": (("--device-debug",), SOURCE, False),
    "LTO-IR": ((), SOURCE, True),
}


@pytest.mark.parametrize("case", TELLING)
def test_where_the_output_can_tell_a_path_two_users_have_two_keys(case: str, users: tuple[User, User]) -> None:
    options, source, is_ltoir = TELLING[case]
    one, other = (each.key(*options, source=source, is_ltoir=is_ltoir) for each in users)
    assert one.has_paths
    assert one.name != other.name != ""


def test_cupys_variable_for_debugging_has_paths_stay(users: tuple[User, User], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_CUDA_COMPILE_WITH_DEBUG", "1")
    one, other = (each.key() for each in users)
    assert one.name != other.name != ""


def test_of_an_assertion_the_output_decides_which_key_it_has(users: tuple[User, User]) -> None:
    """It is not known before whether the compiler keeps it."""
    for user in users:
        user.header.write_text("#include <cassert>\n#define SCALE (assert(threadIdx.x), 7)\n")
    one, other = (each.key() for each in users)
    assert one.name == other.name != ""
    assert one.with_paths != other.with_paths
    assert f"{users[0].headers}/".encode() in one.printed


UNSHARED = {
    "nvcc": ((), {"backend": "nvcc"}),
    "jitify": ((), {"is_jitified": True}),
    "jitify by its option": (("-DCUPY_USE_JITIFY",), {}),
    "precompiled headers": ((), {"is_precompiled": True}),
    "a precompiled header that is named": (("--use-pch=scale.pch",), {}),
    "code that is linked with cudadevrt": (("-dc",), {}),
    "relocatable code": (("--relocatable-device-code=true",), {}),
    "an option that includes a file": (("--pre-include=scale.h",), {}),
    "an option that names a file of options": (("--options-file=options.txt",), {}),
    "options of ptxas": (("-Xptxas=-v",), {}),
    "--restrict": (("--restrict",), {}),
    "-restrict": (("-restrict",), {}),
}


@pytest.mark.parametrize("case", UNSHARED)
def test_what_more_than_nvrtc_reads_has_no_key(case: str, users: tuple[User, User]) -> None:
    options, given = UNSHARED[case]
    found = users[0].key(*options, **given)
    assert found.name == ""
    assert found.why_not


@pytest.mark.parametrize("name", variable_names())
def test_a_variable_of_the_compiler_is_in_the_key(
    name: str, users: tuple[User, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = users[0].key().name
    start_with(monkeypatch, **{name: "1"})
    assert users[0].key().name not in ("", before)


def test_all_that_cupy_makes_its_own_key_of_is_in_the_key(users: tuple[User, User]) -> None:
    """Source, options, architecture, CuPy's own headers by their digest, and the build of NVRTC are one text."""
    request = Request(SOURCE, (f"-I{users[0].headers}",), "nvrtc", (), False, False, False)
    names = {shared_key(request, text, str(users[0].package), None).name for text in (b"13.5", b"13.6", b"13.6 ...")}
    assert len(names - {""}) == 3
