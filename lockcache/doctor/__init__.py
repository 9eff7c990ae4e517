"""What a file system really does, tried out by two processes, and whether a cache directory on it is in order."""
