"""A kernel in cuTile, which reads its source, and annotations as types. Imported by programs of users."""

import cuda.tile as ct


@ct.kernel
def kernel(given, made, size: ct.Constant[int], factor: ct.Constant[int]):
    place = ct.bid(0)
    tile = ct.load(given, index=(place,), shape=(size,))
    ct.store(made, index=(place,), tile=tile * factor)
