"""Log lines that a process writes once, on the logger ``litz``."""

from __future__ import annotations

import functools
import logging

log = logging.getLogger("litz")


@functools.cache
def log_once(line: str, level: int = logging.WARNING) -> None:
    """Log a line, unless this process has logged it. Warnings are printed where logging is not configured."""
    log.log(level, "%s", line)
