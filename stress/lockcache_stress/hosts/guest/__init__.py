"""What runs in the guest: the export, the two clients, processes on them, and the trials.

Promises numbers and no verdicts: each trial gives what it counted as one line of JSON, which the host judges. ``site``
is the server with its clients, ``ranks`` are processes on one of them, ``trials`` is one module for each trial.

May use: judge, plan, processes, run.
"""
