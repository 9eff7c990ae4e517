# SPDX-License-Identifier: Apache-2.0
"""Caches of programs that rename each finished entry into place as a folder: the entry goes as it came, whole.

:mod:`.scan` finds the folders, :mod:`.files` evicts them. A module for each program states where its folders are, and
what makes one whole.
"""
