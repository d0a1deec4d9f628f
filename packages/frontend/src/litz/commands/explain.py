"""``litz explain``: a script is run, and everything that litz compiles for it is reported as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from litz.commands.scripts import backend_instead, default_backend, require_folder, run_script
from litz.explain.explanation import Explanation
from litz.explain.observation import Observation


def explain(
    script: str, arguments: Sequence[str], output: str, document: str | None = None, *, measure: bool = False
) -> int:
    """Run a script with litz as the default backend, and write the page, and the JSON ``document`` where one is named.

    Returns the exit status of the script. The page is written too where the script raises an exception, which is then
    raised again. Raises ``ConfigError`` before the script runs where a file cannot be written for lack of its folder.
    """
    for path in filter(None, (output, document)):
        require_folder(path)
    observation = Observation(measure=measure)
    try:
        with default_backend(), backend_instead(observation.backend):
            return run_script(script, arguments)
    finally:
        _write(observation.explanation(), Path(script).name, output, document)


def _write(report: Explanation, name: str, output: str, document: str | None) -> None:
    """Write the page and the document, and print a summary to stderr."""
    report.to_html(output, title=f"litz explain {name}")
    console = Console(stderr=True)
    breaks = sum(each.count for each in report.breaks)
    console.print(
        f"{len(report.graphs)} graphs, {len(report.kernels)} kernel launches, {len(report.calls)} library calls, "
        f"{len(report.fallbacks)} fallbacks, {breaks} graph breaks, {len(report.recompiles)} recompilations",
        soft_wrap=True,
    )
    console.print(f"page: {output}", markup=False, soft_wrap=True)
    if document is not None:
        Path(document).write_text(json.dumps(report.to_json()), encoding="utf-8")
        console.print(f"document: {document}", markup=False, soft_wrap=True)
