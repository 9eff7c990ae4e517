"""``lockcache-stress simulate``: what evicting by cost saves, replayed with real compile costs and the real ranking."""
