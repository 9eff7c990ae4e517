"""The file-stream store: a directory shared by processes, one module per decision."""
