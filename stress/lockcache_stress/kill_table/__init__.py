"""What survives a SIGKILL at each step: every step is died at, and what is left is looked at; a table of it.

Layers, lower never import higher: ``death`` (dying at the n-th call), ``actions`` (what dies), ``survey`` (what is
left), ``table`` (all of it, and printing it).
"""
