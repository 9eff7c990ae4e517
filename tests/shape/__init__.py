# SPDX-License-Identifier: Apache-2.0
"""The shape of the code, counted: what each operation passes, how long functions are, and which modules form circles.

``make shape`` prints the counts next to what is allowed and what is aimed at; it fails where a count is above what is
allowed. Who lowers a count lowers its limit. Times are for the benchmarks: these counts are the same on every machine.
"""
