"""The page of an explanation: one HTML file that needs no other, by a template with its styles and script inside."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import torch
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from litz.explain.captures import shared_guards
from litz.explain.page.quantities import bytes_text, flops_text, rate_text, seconds_text
from litz.explain.page.sources import shortened, shortened_path
from litz.explain.page.view import graph_view

if TYPE_CHECKING:
    from litz.explain.explanation import Explanation

_TEMPLATES = files("litz.explain.page") / "templates"
"""Folder of the template, the styles and the script."""


def page(explanation: Explanation, title: str) -> str:
    """Return the page of an explanation. Every text in it is escaped, except the page's own styles and script."""
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_text),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": bytes_text,
        "seconds": seconds_text,
        "flops": flops_text,
        "rate": rate_text,
        "shared_guards": shared_guards,
        "shortened": shortened,
        "shortened_path": shortened_path,
    }
    graphs = [graph_view(explanation, graph, number) for number, graph in enumerate(explanation.graphs)]
    return environment.get_template("page.html").render(
        title=title,
        report=explanation,
        graphs=graphs,
        torch_version=torch.__version__,
        style=Markup(_text("page.css")),
        script=Markup(_text("page.js")),
    )


def _text(name: str) -> str:
    """Return the text of a file of the folder."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")
