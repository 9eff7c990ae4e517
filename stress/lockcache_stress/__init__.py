"""lockcache-stress: real processes, real compilers and real kills against one shared directory, every read judged.

It proves what it looks at and no more: each read that a worker made, and the directory at the moments that were
sampled. It does not record histories; a value that nobody read is not judged.
"""
