"""The owner of everything that compilations of a process share: children, the bound on units and their counts."""

from __future__ import annotations

import atexit
import functools
import os
from dataclasses import dataclass, field

from litz.service.background import Background
from litz.service.pool import ChildPool
from litz.service.progress import Watch
from litz.service.unit_budget import UnitBudget


@dataclass(frozen=True, slots=True)
class CompileService:
    """State that the compilations of one process share. It is thread-safe."""

    budget: UnitBudget = field(default_factory=UnitBudget)
    """The bound on units that are compiled at once."""

    children: ChildPool = field(default_factory=ChildPool)
    """Child processes; none before the first graph that needs one."""

    background: Background = field(default_factory=Background)
    """The thread of compilations that nobody waits for; none before the first of these."""

    watch: Watch = field(default_factory=Watch)
    """The graphs and units that are being compiled, for the progress bar."""

    def close(self) -> None:
        """Kill the children and end the thread, at the end of the process."""
        self.background.cancel()
        self.children.close()
        self.background.close()


def compile_service() -> CompileService:
    """Return the service of this process; a forked process gets one of its own."""
    return _service_of(os.getpid())


@functools.cache
def _service_of(pid: int) -> CompileService:
    """Return the service of the process with this id."""
    service = CompileService()
    atexit.register(_close, service, pid)
    return service


def _close(service: CompileService, pid: int) -> None:
    """Close a service where its process ends, not in one that was forked from it."""
    if os.getpid() == pid:
        service.close()


# Made before several threads can ask for it at the same time, in this process and in each one forked from it.
compile_service()
os.register_at_fork(after_in_child=compile_service)
