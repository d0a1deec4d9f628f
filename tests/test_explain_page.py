"""The page of `litz.explain`: escaped, self-contained, linked, and laid out by a browser without overlaps."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import re
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pytest
import torch
from torch import nn
from zoo.torchvision_operators import import_torchvision

import litz
from litz.explain.explanation import Explanation
from litz.testing import fresh_cache

VOID = {"meta", "br", "hr", "img", "input", "link"}
"""Elements of HTML without an end."""

SCRIPT = """import torch

def attack(x):
    y = torch.softmax(x * 2, -1)  # </script><script>alert("<b>1</b>")</script> <img src=x onerror=alert(2)>
    return torch.linalg.inv(y @ y + 3 * torch.eye(8))
"""


class Parsed(HTMLParser):
    """The elements of a page, which must be nested and closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def values(self, attribute: str) -> list[str]:
        """Return the values of an attribute, element by element."""
        return [value for _, found in self.elements if (value := found.get(attribute)) is not None]


def attacked(folder: Path) -> Explanation:
    """Explain a function whose file and folder names and whose source are HTML."""
    named = folder / "<script>alert(3)<" / 'a"onclick="b.py'
    named.parent.mkdir()
    named.write_text(SCRIPT, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("attack", named)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with fresh_cache():  # a cached graph names the lines of the program that it was first compiled for
        return litz.explain(module.attack, torch.randn(8, 8))


def test_every_text_is_escaped(tmp_path: Path) -> None:
    report = attacked(tmp_path)
    text = report.to_html(tmp_path / "page.html", title="</title><script>alert(4)</script>")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text
    page = Parsed(text)
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["script"] == 1 and tags["img"] == 0 and tags["title"] >= 1
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    assert "&lt;/script&gt;&lt;script&gt;alert" in text and "linalg_inv" in text


def test_a_page_needs_no_other_file(tmp_path: Path) -> None:
    page = Parsed(attacked(tmp_path).to_html())
    identities = page.values("id")
    assert len(identities) == len(set(identities))
    assert page.values("src") == [] and {tag for tag, _ in page.elements}.isdisjoint(
        {"link", "iframe", "object"}
    )
    assert all(each.startswith("#") and each[1:] in identities for each in page.values("href"))
    assert set(page.values("aria-controls")) | set(page.values("data-table")) <= set(identities)
    assert not re.search(r"url\(|@import|https?:", page.rawdata)


class Model(nn.Module):
    """A model with a recompilation, a break, a fallback, several kernels and a backward."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.softmax(x, -1)
        torch._dynamo.graph_break()
        if x.shape[0] == 6:
            x = x * 2
        x = torch.nn.functional.gelu(self.norm(self.up(x)))
        result: torch.Tensor = torch.linalg.matrix_exp(torch.softmax(self.down(x).unflatten(-1, (4, 4)), -1))
        return result


@pytest.fixture(scope="module")
def report() -> Explanation:
    torch._dynamo.reset()
    torch.manual_seed(0)
    others = [(torch.randn(6, 16),), (torch.randn(8, 16),)]
    return litz.explain(Model(), torch.randn(4, 16), backward=True, measure=True, others=others)


def test_kernels_are_linked_with_lines_code_and_plan(report: Explanation) -> None:
    text = report.to_html()
    page = Parsed(text)
    for graph, number in zip(report.graphs, range(len(report.graphs)), strict=True):
        for kernel in graph.kernels:
            assert kernel.step is not None and kernel.step.plan == graph.plan.name
            key = f"{number}.0.{kernel.step.position}"
            owners = Counter(
                f"{tag} {(found.get('class') or '').split(' ')[0]}".strip()
                for tag, found in page.elements
                if key in (found.get("data-k") or "").split()
            )
            assert {"div src", "pre block", "div step", "g box", "tr"} <= set(owners), key
            assert owners["pre block"] == owners["div step"] == owners["g box"] == 1


LAYOUT = """
(() => {
  const problems = [];
  const shown = (each) => each.checkVisibility() && !each.closest("details:not([open])");
  const name = (each) => `${each.tagName}.${each.getAttribute("class")} ${each.textContent.trim().slice(0, 40)}`;
  for (const each of document.querySelectorAll(
      "h1, h2, h3, p, dt, dd, td, th, pre, nav a, button, .card, .tile, .pane, .scroll, .drawing, svg, .box")) {
    if (!shown(each)) continue;
    const box = each.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) problems.push("no size: " + name(each));
    if (!each.textContent.trim() && !each.querySelector("svg, input") && each.tagName !== "svg")
      problems.push("empty: " + name(each));
  }
  const apart = (selector) => {
    const found = [...document.querySelectorAll(selector)].filter(shown);
    const boxes = found.map((each) => [each, each.getBoundingClientRect()]);
    boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
      if (one.contains(other) || other.contains(one)) return;
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        problems.push(`overlap: ${name(one)} and ${name(other)}`);
    }));
  };
  [".tile", ".card, .tabs, header", ".pane", ".box", "[data-graph] > section", ".card > *"].forEach(apart);
  if (document.documentElement.scrollWidth > innerWidth + 1) {
    const wide = [...document.querySelectorAll("main :not(.pane *, .scroll *, .drawing *, pre)")]
      .filter((each) => shown(each) && each.clientWidth && each.scrollWidth > each.clientWidth + 1);
    problems.push("the page is wider than the window: " + wide.map(name).join(", "));
  }
  for (const each of document.querySelectorAll(".box text")) {
    const [text, box] = [each.getBoundingClientRect(), each.parentNode.querySelector("rect").getBoundingClientRect()];
    if (shown(each) && text.right > box.right + 1) problems.push("text leaves its box: " + name(each));
  }
  return problems;
})()
"""


@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine")
@pytest.mark.parametrize("width", [1400, 900])
def test_a_browser_shows_it_without_overlaps(report: Explanation, tmp_path: Path, width: int) -> None:
    """Texts without a blank, as names of options and keys in the reason of a cache miss, are broken too."""
    missed = tuple(dataclasses.replace(each, miss=f"another key: {'a' * 400}") for each in report.graphs)
    dataclasses.replace(report, graphs=missed).to_html(tmp_path / "page.html")
    with chromium.opened(tmp_path / "page.html", tmp_path / "profile", width) as page:
        for number in range(len(report.graphs)):
            page.evaluate(f"document.getElementById('tab-{number}').click()")
            assert page.evaluate(LAYOUT) == []


@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine")
def test_tables_sort_and_links_light_by_keyboard(report: Explanation, tmp_path: Path) -> None:
    report.to_html(tmp_path / "page.html")
    most = max(range(len(report.graphs)), key=lambda number: len(report.graphs[number].kernels))
    rows = f"[...document.querySelectorAll('#kernel-table-{most} tbody tr')]"
    moved = f"{rows}.map((row) => Number(row.cells[2].dataset.v))"
    with chromium.opened(tmp_path / "page.html", tmp_path / "profile") as page:
        page.evaluate("document.getElementById('tab-0').focus()")
        for number in range(1, most + 1):
            page.press("ArrowRight")
            hidden = [
                page.evaluate(f"document.getElementById('graph-{k}').hidden") for k in range(number + 1)
            ]
            assert hidden == [True] * number + [False]
        before = page.evaluate(moved)
        assert len(set(before)) > 1
        page.evaluate(f"document.querySelector('#kernel-table-{most} th:nth-child(3) button').focus()")
        page.press("Enter")
        assert page.evaluate(moved) == sorted(before, reverse=True)
        page.press("Enter")
        assert page.evaluate(moved) == sorted(before)
        assert page.evaluate("document.querySelectorAll('[aria-sort=ascending]').length") == 1
        page.evaluate(f"document.querySelector('#sources-{most} .src[data-k]').focus()")
        assert page.evaluate(f"document.querySelectorAll('#sources-{most} .step.lit').length") > 0
        first = page.evaluate("document.activeElement.textContent")
        page.press("ArrowDown")
        assert page.evaluate("document.activeElement.matches('.src')")
        assert page.evaluate("document.activeElement.textContent") != first
        page.evaluate(f"document.querySelector('form[data-table=decision-table-{most}] input').focus()")
        page.press("Tab")
        assert page.evaluate("document.activeElement.name") == "stage"


@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine")
def test_decisions_are_filtered(report: Explanation, tmp_path: Path) -> None:
    report.to_html(tmp_path / "page.html")
    choose = """(() => {
      const form = document.querySelector('form[data-table=decision-table-0]');
      form.elements.stage.value = 'fusion';
      form.dispatchEvent(new Event('input'));
      const rows = [...document.querySelectorAll('#decision-table-0 tbody tr')];
      return [[...new Set(rows.filter((row) => !row.hidden).map((row) => row.cells[0].textContent))], rows.length,
              form.querySelector('output').textContent];
    })()"""
    with chromium.opened(tmp_path / "page.html", tmp_path / "profile") as page:
        stages, count, said = page.evaluate(choose)
    assert stages == ["fusion"] and re.fullmatch(rf"\d+ of {count} rows", said)


def small_model(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], bool]:
    """Return a small model of a family, its arguments, and whether it is explained with its backward."""
    torch.manual_seed(0)
    if name == "resnet":
        torchvision = pytest.importorskip("torchvision")
        return torchvision.models.resnet18(num_classes=10).eval(), (torch.randn(1, 3, 64, 64),), False
    transformers = pytest.importorskip("transformers")
    words = torch.randint(0, 90, (2, 16))
    if name == "bert":
        sizes = {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
        }
        return (
            transformers.BertModel(transformers.BertConfig(vocab_size=100, **sizes)).eval(),
            (words,),
            False,
        )
    config = transformers.GPT2Config(vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=32)
    return transformers.GPT2Model(config), (words,), True


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_pages_of_models_are_light_and_made_in_two_seconds(name: str, tmp_path: Path) -> None:
    with contextlib.suppress(ImportError):
        import_torchvision()
    model, given, backward = small_model(name)
    torch._dynamo.reset()
    with torch.set_grad_enabled(backward):
        found = litz.explain(model, *given, backward=backward)
    start = time.perf_counter()
    text = found.to_html(tmp_path / "page.html")
    assert time.perf_counter() - start < 2
    assert len(text.encode()) < 1_000_000
    Parsed(text)
    drawn = [
        kernel
        for graph in found.graphs
        for kernel in graph.kernels
        if kernel.step is not None and kernel.step.plan == graph.plan.name
    ]
    assert len(found.graphs) >= 1 + backward and text.count('class="box') >= len(drawn) > 0
    if chromium.PROGRAM is not None:
        with chromium.opened(tmp_path / "page.html", tmp_path / "profile") as page:
            assert page.evaluate(LAYOUT) == []
