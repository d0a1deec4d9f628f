"""litz: a layered backend for ``torch.compile``.

``torch.compile(model, backend="litz")`` needs no import of this package, except in programs that first compile in
several threads at once: the import registers the backend. ``litz.explain(fn, *args)`` reports the compiled form of a
function, ``litz.bench(fn, *args)`` times it, and ``litz.config`` holds the options. `docs/index.md` in the repository
of litz lists the pages.
"""

from litz.api import compile_fx, compile_fx_inner, config, mark_step_begin
from litz.backend import register
from litz.explain.report import Explanation, explain
from litz.options import list_mode_options, list_options
from litz.timing import Timing, bench

__version__ = "0.2.0"

__all__ = [
    "Explanation",
    "Timing",
    "__version__",
    "bench",
    "compile_fx",
    "compile_fx_inner",
    "config",
    "explain",
    "list_mode_options",
    "list_options",
    "mark_step_begin",
]

register()
