# SPDX-License-Identifier: Apache-2.0
"""A function and a constant of another module than the kernels of CuTe DSL and cuTile that name them."""

STEP = 5


def scaled(x, factor):
    return x * factor
