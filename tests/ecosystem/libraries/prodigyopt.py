"""An optimizer that finds its rate."""

from __future__ import annotations

from prodigyopt import Prodigy

from ecosystem.optimizing import optimizer_steps
from ecosystem.programs import Backend, Step, program


@program
def prodigy(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: Prodigy(parameters, lr=1.0, safeguard_warmup=True))
