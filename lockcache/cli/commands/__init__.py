# SPDX-License-Identifier: Apache-2.0
"""The commands, a module each, registered by name in :mod:`lockcache.cli.program`.

Each opens a directory, calls one function of the library, and prints what it gave as a table or as JSON.
"""
