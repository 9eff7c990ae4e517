# SPDX-License-Identifier: Apache-2.0
"""Explanations of misses: the parts of a program's key, kept next to what was stored under it, and how two keys differ.

Promises that a part holds a short hash and at most a bounded value, never source code and never what may be a secret
(:class:`Part`), that all parts of an entry take :data:`MOST_BYTES` at most; and that nothing here changes a key.

May use: metadata. Used by the keys and the adapters, which state parts, by the file-stream store, which keeps them,
and by ``lockcache why``.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.explain.key_parts import FRAMEWORK, MOST_BYTES, REST, Difference, Part, bounded, decode_label
    from lockcache.explain.key_parts import decode_parts, differences, looks_secret, make_part, name_path_taker
    from lockcache.explain.key_parts import reasons_of, values_in_words
    from lockcache.explain.statements import Hashed, Label, Stated, is_remembered, key_in_words, known_statement
    from lockcache.explain.statements import parts_of_digest, remember, remember_digest, state, statement_of
else:
    __getattr__, __dir__ = door(__name__)
