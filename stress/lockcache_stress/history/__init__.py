"""Histories: what every process did to every key, when, and whether one shared register could have done it.

Layers, lower never import higher: ``operations`` (what can be recorded, and its files), ``model`` (what is legal),
``reduction`` (the smallest part of one that is not), ``timeline`` (drawing that), ``verdict`` (all keys of a run).
"""
