# SPDX-License-Identifier: Apache-2.0
"""Runs ``lockcache_hook``, next to this file, at the start of each Python that the command of ``lockcache run`` starts.

Any Python runs this, since ``lockcache run`` has put the folder in front of the others: the syntax is that of Python 2
too. A Python that is too old for the hook runs the ``sitecustomize`` that this one hides, and nothing else.
"""

import sys

if sys.version_info >= (3, 7):  # noqa: UP036
    import lockcache_hook  # type: ignore[import-not-found]  # in the folder from which Python takes this file

    lockcache_hook.run(__file__)
else:
    import imp
    import os

    _here = os.path.dirname(os.path.abspath(__file__))
    _places = [_place for _place, _folder in enumerate(sys.path) if os.path.abspath(_folder) == _here]
    try:
        _hidden = imp.find_module("sitecustomize", sys.path[max(_places) + 1 :])
    except ImportError:
        pass
    else:
        imp.load_module("sitecustomize", *_hidden)
