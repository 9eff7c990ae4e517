# SPDX-License-Identifier: Apache-2.0
"""Adapters: other programs' caches, on lockcache. Each keeps its program's names and files, and adds the invariants."""
