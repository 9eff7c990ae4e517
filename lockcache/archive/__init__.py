"""A cache directory in one file: packed from verified entries, and verified again on the way into another directory."""
