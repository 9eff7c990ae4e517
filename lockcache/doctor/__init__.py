# SPDX-License-Identifier: Apache-2.0
"""The doctor: tries out with two processes what a file system really does, and looks at the cache directory on it."""
