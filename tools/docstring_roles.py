"""Hook of mkdocs that turns roles of docstrings, such as `` :class:`~litz_ir.plan.Plan` ``, into links.

Markdown leaves a role as its name between colons, followed by code. A name that no page has stays code.
"""

from __future__ import annotations

import re

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):<code>(~?)([\w.]+)(?:\(\))?</code>")


def on_page_content(html: str, **_: object) -> str:
    """Return a page's content with a reference in place of each role; a tilde leaves the last part of its name."""
    return _ROLE.sub(_reference, html)


def _reference(role: re.Match[str]) -> str:
    tilde, name = role.groups()
    shown = name.rpartition(".")[2] if tilde else name
    return f'<autoref identifier="{name}" optional><code>{shown}</code></autoref>'
