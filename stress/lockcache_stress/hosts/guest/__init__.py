# SPDX-License-Identifier: Apache-2.0
"""The guest's side: the server, the two clients, processes on them, and the trials.

Promises numbers and no verdicts: each trial writes its counts as one line of JSON, which the host judges. ``site`` is
the server with its clients, which a module for each file system makes; ``ranks`` are processes on one of the clients;
``trials`` has one module for each trial.

May use: judge, plan, processes, run, trouble.
"""
