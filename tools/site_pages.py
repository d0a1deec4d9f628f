"""Hook of mkdocs that adds pages from outside docs/ to the site, and leads links to where they are there."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File, Files
from site_links import ROOT, links_of_site, pages_outside


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages from outside docs/ to the files of the site."""
    for source, shown in pages_outside().items():
        files.append(File.generated(config, shown, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: object) -> str:
    """Return a page's text with links that hold on the site."""
    shown = page.file.src_uri
    sources = {there: here for here, there in pages_outside().items()}
    source = sources.get(shown, f"docs/{shown}")
    return links_of_site(markdown, source, shown, {each.src_uri for each in files})
