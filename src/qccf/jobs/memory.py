"""A setting of the C library's memory allocator, for processes that train. It lasts until the process ends."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Option numbers of mallopt, from malloc.h."""


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next batch, in one pool for all threads. Other C libraries are left alone.

    By default glibc returns large blocks to the system and gets them back page by page, a fifth of the time of a round.
    Only the command line and its worker processes call this: a library must not change its host process for good.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, 2**30), (M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(option, value)
