# SPDX-License-Identifier: Apache-2.0
"""The parts of ``lockcache top``: samples of directories, and the picture that is made of them."""
