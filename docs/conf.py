# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx, which builds these pages: `make docs`. Every warning is an error there."""

from __future__ import annotations

import lockcache

project = "lockcache"
author = "the lockcache authors"
copyright = author  # noqa: A001 - Sphinx's name
version = release = lockcache.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]

# Each heading can be linked to as page.md#its-text.
myst_heading_anchors = 3
# What a docstring refers to must be in the API reference, if it is lockcache's; nothing is fetched to know the others.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!lockcache).*"),
    # In signatures of the store's parts, and nobody's to make.
    (r"py:class", r"lockcache\.single_flight\._Entry"),  # a type variable
    (
        r"py:class",
        r"lockcache\.filestream\.disk\.(space\.Space|(locks|holds)\.Hold|mounts\.Hosts|recency\.Recency|descriptors\.(Kept)?Descriptor)",
    ),
    (r"py:class", r"lockcache\.filestream\.accounting\.(counters\.HeldCounters|head\.Head|stated_policy\.Stated)"),
    (r"py:class", r"lockcache\.filestream\.policy\.Seed"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"_T": "_T"}
# Single backticks in docstrings are code.
default_role = "code"

html_theme = "sphinx_book_theme"
html_title = f"lockcache {release}"
html_theme_options = {
    "navigation_with_keys": False,
    "navbar_persistent": [],  # one field to search in is enough: the side bar has it
    "show_toc_level": 2,
    "toc_title": "On this page",
    "use_download_button": False,
    "use_fullscreen_button": False,
}
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_sourcelink = False
html_copy_source = False
