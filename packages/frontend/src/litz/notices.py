"""Lines that a process says once, on the logger ``litz``."""

from __future__ import annotations

import functools
import logging

log = logging.getLogger("litz")


@functools.cache
def log_once(line: str, level: int = logging.WARNING) -> None:
    """Log a line, unless this process has said it. A warning is printed where nobody set logging up."""
    log.log(level, "%s", line)
