# SPDX-License-Identifier: Apache-2.0
"""The parts of ``lockcache run``: the command that is run, the ranks of a node, and its bundle and its daemon."""
