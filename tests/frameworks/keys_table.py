# SPDX-License-Identifier: Apache-2.0
"""The parts of the guide's table of keys, cell by cell, with the tests that ask the frameworks; or why none does.

``tests/docs/test_keys_table.py`` compares it with the table in ``docs/guides/frameworks.md``.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Unasked(NamedTuple):
    """A part of a cell without a test."""

    why: str


#: Where tests stand.
_FILES: Final = {
    "keys": "tests/frameworks/test_keys.py",
    "by_framework": "tests/frameworks/test_keys_by_framework.py",
    "languages": "tests/frameworks/test_languages.py",
    "herds": "tests/frameworks/test_frameworks.py",
    "extensions": "tests/frameworks/test_cpp_extension.py",
    "flashinfer": "tests/frameworks/test_flashinfer.py",
    "inductor": "tests/frameworks/test_inductor.py",
    "of_adapter": "tests/unit/integrations/test_adapter_keys.py",
    "of_cupy": "tests/unit/integrations/test_cupy_keys.py",
    "of_numba": "tests/unit/integrations/test_numba_keys.py",
    "of_triton": "tests/unit/integrations/test_triton_keys.py",
    "of_cpp": "tests/unit/integrations/test_cpp_keys.py",
    "of_extensions": "tests/unit/integrations/test_cpp_extension.py",
    "of_flashinfer": "tests/unit/integrations/test_flashinfer.py",
}

_TOLD_APART = "keys: test_what_the_program_says_is_told_apart_though_times_and_sizes_are_equal"
_CONSTANT = f"{_TOLD_APART}[%s-a constant]"
_FUNCTION = f"{_TOLD_APART}[%s-a device function of another module]"
_OTHERS_CONSTANT = f"{_TOLD_APART}[%s-a constant of another module]"
_PRIVATE = "keys: test_what_is_private_keeps_nobody_from_sharing"
_CHECKOUT, _DIRECTORY, _TIME = (
    f"{_PRIVATE}[%s-{place}]" for place in ("another checkout", "another directory of its own", "another time")
)
_MOVED = f"{_PRIVATE}[%s-another path of all that is shared]"
_OPTIONS = "keys: test_options_are_told_apart[%s]"
_VARIABLES = "keys: test_variables_that_change_the_output_are_told_apart[%s]"
_COMPILERS_VARIABLES = "of_adapter: test_a_variable_of_nvidias_compilers_is_in_all_keys_and_is_stated"
_UNSHARED = "keys: test_what_cannot_be_keyed_stays_in_the_frameworks_own_cache[%s]"
_VERSION = "of_adapter: test_what_another_version_of_the_framework_stored_is_not_found"
_CUPYS_OWN = "of_cupy: test_all_that_cupy_makes_its_own_key_of_is_in_the_key"
_CUPY_TELLS = "of_cupy: test_where_the_output_can_tell_a_path_two_users_have_two_keys[%s]"
_CUPY_UNSHARED = "of_cupy: test_what_more_than_nvrtc_reads_has_no_key[%s]"
_NUMBA_LINES = "by_framework: test_with_line_information_another_checkout_compiles_again[lineinfo-%s]"
_LIBRARIES = "of_extensions: test_whatever_can_change_the_library_changes_the_key[%s]"
_FLASHINFERS = "of_flashinfer: test_whatever_can_change_the_library_changes_the_key[%s]"
_NO_FOLDER = "of_extensions: test_what_leads_from_the_folder_or_leaves_more_than_the_library_has_no_key[%s]"
_GUIDE = Unasked("the page that it leads to says it")

_CUPY = (
    ("source", _CONSTANT % "cupy"),
    ("options", _OPTIONS % "cupy"),
    ("CuPy's own headers", _CUPYS_OWN),
    ("build of NVRTC", _CUPYS_OWN),
    ("headers that the source includes", _FUNCTION % "cupy"),
    ("variables of the compiler", _COMPILERS_VARIABLES, "of_cupy: test_a_variable_of_the_compiler_is_in_the_key"),
    (
        "`-I` with the paths of the virtual environment",
        "of_cupy: test_two_users_have_one_key_and_another_header_is_another",
    ),
    ("of CUDA", Unasked("NVRTC's own headers come with its wheel, and with CuPy they have no other path")),
    ("of the user", "of_cupy: test_two_users_have_one_key_and_another_header_is_another"),
    (
        "the digest of headers and the variables are added",
        "keys: test_a_header_that_lies_next_to_a_header_is_in_cupys_key",
    ),
    ("Paths are taken out", _CHECKOUT % "cupy"),
    ("except with `__FILE__`", _CUPY_TELLS % "the name of the file"),
    ("assertions that print them", "of_cupy: test_of_an_assertion_the_output_decides_which_key_it_has"),
    ("debug", _CUPY_TELLS % "debug information", "of_cupy: test_cupys_variable_for_debugging_has_paths_stay"),
    ("line information", _CUPY_TELLS % "line information"),
    ("LTO-IR", _CUPY_TELLS % "LTO-IR"),
    ("nvcc", _CUPY_UNSHARED % "nvcc"),
    ("jitify", _CUPY_UNSHARED % "jitify"),
    ("linking with `cudadevrt`", _CUPY_UNSHARED % "code that is linked with cudadevrt"),
    ("precompiled headers", _CUPY_UNSHARED % "precompiled headers"),
    ("options that name a file", _CUPY_UNSHARED % "an option that includes a file", _UNSHARED % "cupy"),
    ("`--restrict`", _CUPY_UNSHARED % "--restrict"),
)
_NUMBA = (
    ("types", "herds: test_a_cold_herd_compiles_each_kernel_once_and_a_warm_process_none[numba]"),
    ("bytecode", "of_numba: test_constants_of_the_code_and_what_it_encloses_are_in_its_key"),
    ("closure", "of_numba: test_constants_of_the_code_and_what_it_encloses_are_in_its_key"),
    ("version of NVRTC", Unasked("only one NVRTC is installed here; its build is asked below")),
    (
        "compute capability",
        "by_framework: test_the_gpu_and_the_builds_of_compilers_are_in_numbas_key[_another_cuda_architecture]",
    ),
    ("constants of the code and of modules", _CONSTANT % "numba", _OTHERS_CONSTANT % "numba"),
    ("device functions of other modules", _FUNCTION % "numba"),
    ("options of `cuda.jit` that are variables", _OPTIONS % "numba"),
    ("`NUMBA_` settings", _VARIABLES % "numba"),
    (
        "builds of NVVM, libdevice and the linker",
        "by_framework: test_the_gpu_and_the_builds_of_compilers_are_in_numbas_key[_another_compiler_of_numba]",
    ),
    ("path and time of the source file", _CHECKOUT % "numba", _TIME % "numba"),
    ("the name of `NUMBA_CACHE_DIR`", _DIRECTORY % "numba"),
    (
        "the kernel is described by its code, and by all values and functions that it names",
        "of_numba: test_what_a_kernel_names_is_in_its_key",
    ),
    ("Path, time and directory are taken out", _CHECKOUT % "numba"),
    ("with debug or line information the path and the lines stay", _NUMBA_LINES % "numba"),
    ("`link=`", "of_numba: test_options_are_told_apart_in_any_order_and_what_runs_code_while_it_compiles_has_no_key"),
    ("extensions", _UNSHARED % "numba"),
    ("types that are not numba's", "of_numba: test_what_another_process_cannot_tell_apart_has_no_key"),
    ("objects whose meaning is not known", "of_numba: test_what_another_process_cannot_tell_apart_has_no_key"),
    ("keys with an address", "of_numba: test_what_another_process_cannot_tell_apart_has_no_key"),
)
_NUMBA_MLIR = (
    ("types", "herds: test_a_cold_herd_compiles_each_kernel_once_and_a_warm_process_none[numba_mlir]"),
    ("bytecode", _CONSTANT % "numba_mlir"),
    ("closure", "of_numba: test_constants_of_the_code_and_what_it_encloses_are_in_its_key"),
    ("version of the toolkit", Unasked("only one toolkit is installed here")),
    ("chip", Unasked("the key has numba-cuda-mlir's own part as it is")),
    ("`lto`", Unasked("the key has numba-cuda-mlir's own part as it is")),
    ("`launch_bounds`", Unasked("the key has numba-cuda-mlir's own part as it is")),
    ("as numba-cuda", _FUNCTION % "numba_mlir", _OTHERS_CONSTANT % "numba_mlir", _VARIABLES % "numba_mlir"),
    ("all other options of `cuda.jit`, `fastmath` and `opt_level` too", _OPTIONS % "numba_mlir"),
    (
        "annotations that are signatures",
        "of_numba: test_annotations_are_part_of_a_program_where_the_compiler_reads_them",
    ),
    ("as numba-cuda", _CHECKOUT % "numba_mlir", _TIME % "numba_mlir", _DIRECTORY % "numba_mlir"),
    ("as numba-cuda", _NUMBA_LINES % "numba_mlir"),
    ("Not shared, too: `consteval`", _UNSHARED % "numba_mlir"),
    ("`abi_info`", Unasked("compiling with it needs a driver that launches")),
)
_TRITON = (
    ("source", _CONSTANT % "triton"),
    ("functions that it calls", _FUNCTION % "triton"),
    ("from 3.5 on constants of its own module", _CONSTANT % "triton"),
    ("options", _OPTIONS % "triton"),
    (
        "files of Triton",
        "by_framework: test_tritons_files_and_the_build_of_ptxas_are_in_its_key[_change_a_file_of_triton]",
    ),
    ("build of ptxas", "by_framework: test_tritons_files_and_the_build_of_ptxas_are_in_its_key[_take_another_ptxas]"),
    ("variables", _VARIABLES % "triton"),
    ("before 3.5 constants of its own module", _CONSTANT % "triton-3.3", _CONSTANT % "triton-oldest"),
    (
        "constants that a module, class or object names (`config.BLOCK`)",
        "keys: test_constants_from_elsewhere_are_in_tritons_key[of a class above]",
        "keys: test_constants_from_elsewhere_are_in_tritons_key[of an object]",
    ),
    ("defaults of functions", "keys: test_constants_from_elsewhere_are_in_tritons_key[as a default]"),
    ("types of constants that print alike", "keys: test_constants_from_elsewhere_are_in_tritons_key[of another type]"),
    (
        "of launchers the C library and compiler",
        "keys: test_a_launcher_for_another_c_library_is_another_launcher",
        "by_framework: test_the_compiler_and_the_folders_of_headers_are_in_the_keys_of_tritons_launchers",
    ),
    (
        "include directories in the keys of launchers",
        "by_framework: test_the_compiler_and_the_folders_of_headers_are_in_the_keys_of_tritons_launchers",
    ),
    ("the constants", _OTHERS_CONSTANT % "triton"),
    ("the version of the C library", "keys: test_a_launcher_for_another_c_library_is_another_launcher"),
    (
        "`CC` and `CXX` are added",
        "by_framework: test_the_compiler_and_the_folders_of_headers_are_in_the_keys_of_tritons_launchers",
    ),
    (
        "A launcher is found again only where Triton lies at the same path",
        "by_framework: test_the_compiler_and_the_folders_of_headers_are_in_the_keys_of_tritons_launchers",
    ),
)
_JAX = (
    ("program", _CONSTANT % "jax", _FUNCTION % "jax", _OTHERS_CONSTANT % "jax"),
    ("options", _OPTIONS % "jax"),
    ("XLA flags", _VARIABLES % "jax"),
    ("version", _VERSION),
    ("devices", "by_framework: test_how_many_devices_a_jax_program_is_for_is_in_its_key"),
    (
        "the CPU's instructions, in some versions",
        "keys: test_a_jax_program_for_a_cpu_with_other_instructions_is_another_program",
    ),
    ("the directory's name, for XLA's own caches", _MOVED % "jax", _DIRECTORY % "jax"),
    ("XLA's own caches are turned off, which takes the name out", _MOVED % "jax"),
    (
        "The instructions are added for the CPU",
        "keys: test_a_jax_program_for_a_cpu_with_other_instructions_is_another_program",
    ),
)
_WARP_CPU = "by_framework: test_a_warp_module_for_a_cpu_with_other_instructions_is_another[%s]"
_WARP_LINES = "by_framework: test_with_line_information_the_places_of_functions_are_in_warps_key[%s-warp]"
_WARP = (
    ("source", _CONSTANT % "warp"),
    ("functions", _FUNCTION % "warp"),
    ("constants", _OTHERS_CONSTANT % "warp"),
    ("structures", "by_framework: test_a_structure_is_in_warps_key"),
    ("native snippets", "by_framework: test_a_native_snippet_is_in_warps_key[warp]"),
    ("options", _OPTIONS % "warp"),
    (
        "files that native snippets or `ModuleBuildOptions` include",
        _UNSHARED % "warp",
        "by_framework: test_folders_of_headers_keep_a_warp_module_in_its_own_cache",
    ),
    (
        "variables of the compiler",
        "by_framework: test_a_variable_of_the_compiler_in_warp_changes_its_output_and_its_key",
    ),
    ("before 1.19 the CPU's instructions", _WARP_CPU % "warp-oldest"),
    ("with line information the places of functions", _WARP_LINES % "line information"),
    ("nothing", _CHECKOUT % "warp", _TIME % "warp", _DIRECTORY % "warp"),
    (
        "instructions, variables and places are added",
        _WARP_CPU % "warp",
        _WARP_LINES % "debug mode",
        _COMPILERS_VARIABLES,
    ),
    ("Modules that include files are not shared", _UNSHARED % "warp"),
)
_CUTE_APART = "languages: test_what_the_program_says_is_told_apart[cute]"
_CUTE_FILES = "languages: test_what_names_a_file_is_compiled_each_time"
_CUTE = (
    ("of calls, the traced program, variables and options", _CUTE_APART),
    ("none of `cute.compile`", "herds: test_a_cold_herd_compiles_each_kernel_once_and_a_warm_process_none[cute]"),
    ("the compiler's build", _VERSION),
    (
        "of two toolkits the one that compiles",
        "languages: test_what_another_toolkits_compiler_made_is_not_found",
    ),
    ("the bytes of files that options name", f"{_CUTE_FILES}[--link-libraries=library.bc]"),
    (
        "places in source files",
        "languages: test_in_another_checkout_what_names_no_path_is_found[cute]",
    ),
    ("the paths of runtime libraries", Unasked("it takes two installations; no path of them is in what is hashed")),
    ("the key is all that the compiler is given", _CUTE_APART),
    ("its version", _VERSION),
    ("Places stay with line information", "by_framework: test_cutes_places_stay_where_line_information_is_asked_for"),
    ("options that name files", _CUTE_FILES),
    ("diagnostics", "languages: test_a_switch_of_its_own_has_nothing_read_or_stored[cute-variables3]"),
)
_CUTILE_KEY = (
    "by_framework: test_bytecode_target_level_version_and_the_bytes_of_libraries_are_in_cutiles_key_and_no_path"
)
_CUTILE_PATH = "languages: test_in_another_checkout_what_names_no_path_is_found[cutile]"
_CUTILE = (
    ("bytecode", _CUTILE_KEY, "languages: test_what_the_program_says_is_told_apart[cutile]"),
    ("architecture", _CUTILE_KEY),
    ("level", _CUTILE_KEY),
    ("version of the compiler", _CUTILE_KEY),
    ("libraries by path and version", _CUTILE_KEY),
    ("the bytes of libraries", _CUTILE_KEY),
    ("the path of the source file, which is in the cubin", _CUTILE_PATH),
    ("paths of libraries", _CUTILE_KEY),
    ("libraries count by their bytes", _CUTILE_KEY),
    ("The source's path stays, so another checkout compiles again", _CUTILE_PATH),
)
_HELION_KEY = "by_framework: test_kernel_shapes_types_and_device_and_the_versions_of_all_are_in_helions_key"
_HELION = (
    ("source", _HELION_KEY),
    ("shapes", _HELION_KEY),
    ("types", _HELION_KEY),
    ("device", _HELION_KEY),
    ("versions, unless the cache is a strict one", _HELION_KEY),
    ("nothing", Unasked("a key is of values that Helion states, none of which is a path")),
    ("the versions of Helion, torch and Triton are added", _HELION_KEY),
)
_EXTENSIONS = (
    (
        "nothing: the folder has the name that the program gave, and ninja compares times",
        "extensions: test_on_another_node_nothing_is_compiled_and_changes_of_sources_and_headers_count",
    ),
    ("sources", _LIBRARIES % "source"),
    ("flags", _LIBRARIES % "flag"),
    ("headers", _LIBRARIES % "header"),
    ("compilers", _LIBRARIES % "another compiler"),
    ("versions", _LIBRARIES % "version of torch"),
    ("paths in the build file", "of_extensions: test_the_same_extension_has_the_same_key_in_other_folders"),
    ("all of these are the key", _LIBRARIES % "header of a header"),
    (
        "Paths stay with debug information, and where a text asks for its own",
        "of_extensions: test_a_path_that_can_be_in_the_library_is_in_the_key",
        "extensions: test_in_another_checkout_it_is_found_unless_paths_are_in_it",
    ),
    ("relative paths", _NO_FOLDER % "-Irelative"),
    ("flags that leave more than the library", _NO_FOLDER % "--save-temps"),
)
_FLASHINFER_SITE = "flashinfer: test_in_another_environment_it_is_found_unless_a_header_was_changed_there"
_FLASHINFER = (
    (
        "its version, architectures and the library's name, which are the folder",
        "flashinfer: test_flags_variables_of_compilers_and_the_toolkit_count",
    ),
    ("ninja compares times", "flashinfer: test_a_changed_source_counts_though_its_time_is_the_same"),
    ("sources", _FLASHINFERS % "source"),
    ("flags", _FLASHINFERS % "flag"),
    ("headers", _FLASHINFERS % "another wheel"),
    ("compilers", "flashinfer: test_flags_variables_of_compilers_and_the_toolkit_count"),
    ("the toolkit", "flashinfer: test_flags_variables_of_compilers_and_the_toolkit_count"),
    ("paths in the build file", "of_flashinfer: test_in_another_environment_and_home_the_key_is_the_same"),
    ("the folder of its cache", "of_flashinfer: test_in_another_environment_and_home_the_key_is_the_same"),
    ("as torch's C++ extensions", _LIBRARIES % "header"),
    (
        "Of headers of FlashInfer the key has the digests of the wheel, and a hit looks whether any was changed since",
        _FLASHINFER_SITE,
    ),
    ("an installation that is not from a wheel", "of_flashinfer: test_without_a_record_nothing_has_a_key"),
    ("headers that were changed", _FLASHINFER_SITE),
    (
        "embedded cubins",
        "of_flashinfer: test_a_launcher_of_another_compiler_and_a_rule_for_cubins_have_no_key",
    ),
)
_INDUCTOR = (
    ("graph", "inductor: test_on_another_node_all_graphs_are_hits_forward_and_backward"),
    ("options", Unasked("the key is torch's as it is")),
    ("torch and its source", _VERSION),
    ("GPU", Unasked("it needs a GPU")),
    ("see [its page](frameworks/inductor.md)", _GUIDE),
    ("the index of the device", Unasked("it needs two GPUs")),
    ("see [its page](frameworks/inductor.md)", _GUIDE),
)

#: The rows of the table. Of each, the parts of its cells in their order, with their tests.
ROWS: Final[dict[str, tuple[tuple[str | Unasked, ...], ...]]] = {
    "CuPy": _CUPY,
    "numba-cuda": _NUMBA,
    "numba-cuda-mlir": _NUMBA_MLIR,
    "Triton": _TRITON,
    "JAX": _JAX,
    "Warp": _WARP,
    "CuTe DSL": _CUTE,
    "cuTile": _CUTILE,
    "Helion": _HELION,
    "C++ extensions of torch": _EXTENSIONS,
    "FlashInfer": _FLASHINFER,
    "Inductor": _INDUCTOR,
}


def place_of(test: str) -> tuple[str, str, str]:
    """Returns the file of a test, its name, and the words in brackets behind it, which may be missing."""
    file, _, name = test.partition(": ")
    name, _, words = name.partition("[")
    return _FILES[file], name, words.removesuffix("]")
