"""Log lines that a process writes once, on the logger ``litz``, and records of torch's log artifacts."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable

from torch._logging._internal import getArtifactLogger, log_registry

log = logging.getLogger("litz")

FORMS = ("pre_grad_graphs", "post_grad_graphs", "ir_pre_fusion", "ir_post_fusion")
"""Torch's artifacts of forms that a graph has while it is compiled."""


@functools.cache
def log_once(line: str, level: int = logging.WARNING) -> None:
    """Log a line, unless this process has logged it. Warnings are printed where logging is not configured."""
    log.log(level, "%s", line)


@functools.cache
def artifact_log(name: str) -> logging.Logger | None:
    """Return litz's logger of one of torch's artifacts; ``None`` for an artifact that this torch does not have."""
    return getArtifactLogger(__name__, name) if name in log_registry.artifact_names else None


def is_shown(name: str) -> bool:
    """Report whether an artifact is on, as ``TORCH_LOGS`` and ``torch._logging.set_logs`` turn it on."""
    found = artifact_log(name)
    return found is not None and found.isEnabledFor(logging.DEBUG)


def log_artifact(name: str, graph: str, texts: Callable[[], Iterable[str]]) -> None:
    """Log the texts that an artifact shows of a graph, each in a record that begins with the graph's name.

    An artifact that is off costs one comparison: ``texts`` is not called.
    """
    found = artifact_log(name)
    if found is None or not found.isEnabledFor(logging.DEBUG):
        return
    if not found.handlers:
        # Those of torch's own, which TORCH_LOGS_OUT and set_logs configure.
        found.propagate = False
        for handler in logging.getLogger("torch").handlers:
            found.addHandler(handler)
    for text in texts():
        found.debug("litz: %s: %s", graph, text)
