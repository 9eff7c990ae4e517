# SPDX-License-Identifier: Apache-2.0
"""lockcache-stress: real processes, real compilers and real kills against one shared directory, every read judged.

Judges each read of each worker, the directory at the moments that were sampled, and the history of every key, which all
operations of all processes make. A value that no process read is not judged.
"""
