# SPDX-License-Identifier: Apache-2.0
"""Program and Linker: cuda.core's, with ``cache=``.

Promises drop-ins: change the import, nothing else. Loads cuda.core; says how to install it where it is missing. May
use: the keys, the headers, and the interface of the back ends.
"""

from lockcache.errors import how_to_install

try:
    import cuda.core
except ModuleNotFoundError as error:
    message = f"lockcache.cuda needs cuda.core: {how_to_install('cuda')}"
    raise ModuleNotFoundError(message, name=error.name) from error

from lockcache.cuda.linker import Linker
from lockcache.cuda.program import Program

__all__ = ["Linker", "Program"]
