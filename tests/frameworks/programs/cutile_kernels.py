# SPDX-License-Identifier: Apache-2.0
"""A kernel in cuTile, which reads its source, and annotations as types. Imported by programs of users."""

import cuda.tile as ct
import language_helper

MASK = 3


@ct.kernel
def kernel(given, made, size: ct.Constant[int], factor: ct.Constant[int]):
    place = ct.bid(0)
    tile = ct.load(given, index=(place,), shape=(size,))
    tile = language_helper.scaled(tile, factor) + MASK
    ct.store(made, index=(place,), tile=tile * language_helper.STEP)
