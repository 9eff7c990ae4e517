"""The guest's side: the server, the two clients, processes on them, and the trials.

Promises numbers and no verdicts: each trial gives what it counted as one line of JSON, which the host judges. ``site``
is the server with its clients, and a module for each file system makes them; ``ranks`` are processes on one of the
clients, ``trials`` is one module for each trial.

May use: judge, plan, processes, run, trouble.
"""
