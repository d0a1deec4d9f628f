"""Records of torch's structured trace (``TORCH_TRACE``), which ``tlparse`` shows as pages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from torch._dynamo.utils import get_chromium_event_logger
from torch._logging._internal import trace_structured

from litz.trace.pages import Page


def emit(graph: str, pages: Iterable[Page]) -> None:
    """Emit a record for each page of a graph: an artifact called ``litz_<graph>_<page>``."""
    for page in pages:
        metadata = {"name": f"litz_{graph}_{page.name}", "encoding": page.encoding}
        text = page.text
        trace_structured("artifact", lambda own=metadata: own, payload_fn=lambda own=text: own)  # type: ignore[misc]


def emit_times(graph: str, seconds: Mapping[str, float]) -> None:
    """Emit the times of a graph's stages as events of torch's timeline, which end now and follow one another."""
    events = get_chromium_event_logger()
    now = time.time_ns() - sum(int(1e9 * taken) for taken in seconds.values())
    for stage, taken in seconds.items():
        name, start, now = f"litz.{stage}", now, now + int(1e9 * taken)
        events.log_event_start(name, start, {"graph": graph})
        events.log_event_end(name, now, {"graph": graph}, start, False)
