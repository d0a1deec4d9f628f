"""The site: links that leave docs/, charts against their tables, tests that answers name, and the look at pages."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import charts
import chromium
import pytest
import site_layout
from charts import Chart
from site_links import links_of_site, pages_outside
from test_compatibility_page import TEST, functions_of

ROOT = Path(__file__).resolve().parent.parent
KNOWN = {"passes.md", "decisions/0004-cache.md", *pages_outside().values()}


@pytest.mark.parametrize(
    ("source", "shown", "text", "expected"),
    [
        ("docs/faq.md", "faq.md", "[a](../packages/frontend/README.md#options)", "[a](packages/frontend.md#options)"),
        ("docs/decisions/1.md", "decisions/1.md", "[a](../../CONTRIBUTING.md)", "[a](../contributing/index.md)"),
        ("docs/decisions/1.md", "decisions/1.md", "[a](../../tests/conftest.py)", "a"),
        ("docs/faq.md", "faq.md", "[a](passes.md#patterns)", "[a](passes.md#patterns)"),
        ("docs/faq.md", "faq.md", "[a](https://b.org/c.md) [d](#e)", "[a](https://b.org/c.md) [d](#e)"),
        ("docs/faq.md", "faq.md", "`docs/passes.md`", "`docs/passes.md`"),
        ("CONTRIBUTING.md", "contributing/index.md", "[a](docs/passes.md)", "[a](../passes.md)"),
        ("packages/ir/README.md", "packages/ir.md", "`docs/passes.md`", "[`docs/passes.md`](../passes.md)"),
        ("packages/ir/README.md", "packages/ir.md", "`docs/none.md`", "`docs/none.md`"),
        ("packages/ir/README.md", "packages/ir.md", "```\n[a](b.md)\n```\n", "```\n[a](b.md)\n```\n"),
    ],
)  # fmt: skip
def test_links_hold_on_the_site(source: str, shown: str, text: str, expected: str) -> None:
    assert links_of_site(text, source, shown, KNOWN) == expected


def test_pages_from_outside_exist_and_have_names_of_their_own() -> None:
    outside = pages_outside()
    assert [path for path in outside if not (ROOT / path).is_file()] == []
    assert len(set(outside.values())) == len(outside) >= 14
    assert [shown for shown in outside.values() if (ROOT / "docs" / shown).exists()] == []


@pytest.mark.parametrize("chart", charts.ALL, ids=lambda chart: chart.name)
def test_a_chart_shows_the_figures_of_its_table(chart: Chart) -> None:
    assert charts.differences(chart) == []
    assert len(charts.shown(chart)) >= 10
    page = (ROOT / "docs" / chart.page).read_text(encoding="utf-8")
    assert f"charts/{chart.name}.svg)" in page


def test_a_chart_that_differs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = charts.ALL[0]
    text = chart.path.read_text(encoding="utf-8")
    monkeypatch.setattr(charts, "CHARTS", tmp_path)
    assert charts.differences(chart) != [], "it is missing"
    bar = re.search(r'\|1\.760">\s*<path d="M (\S+) \S+\s+L (\S+) ', text)
    assert bar is not None
    for changed in (
        text.replace("|1.760", "|1.770"),
        text.replace(bar[0], bar[0].replace(bar[2], f"{float(bar[2]) + 20}")),
    ):
        chart.path.write_text(changed, encoding="utf-8")
        assert charts.differences(chart) != []
    chart.path.write_text(text, encoding="utf-8")
    assert charts.differences(chart) == []
    other = dataclasses.replace(chart, series=("litz over eager",))
    assert charts.differences(other) != []


def test_answers_name_tests_that_exist() -> None:
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    named = TEST.findall(text)
    assert text.count("::test_") == len(named) >= 40
    assert [(file, name) for file, name in named if name not in functions_of(ROOT / file)] == []
    answers = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    assert len(answers) >= 30
    unsupported = [each.splitlines()[0] for each in answers if "::test_" not in each and ".md" not in each]
    assert unsupported == []


def test_pictures_are_small_and_need_no_other_file() -> None:
    pictures = [path for path in (ROOT / "docs" / "pictures").rglob("*") if path.is_file()]
    assert len(pictures) >= 15
    assert [path.name for path in pictures if path.stat().st_size > 150_000] == []
    for path in pictures:
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"url\(['\"]?(?!#)|(?:href|src)=\"(?!#)|<script", text), path.name


@pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium on this machine")
def test_the_look_at_pages_finds_problems(tmp_path: Path) -> None:
    words = "words " * 40
    bodies = {
        "good": f"<p>{words}</p><div style='overflow-x: auto'><pre>{'x' * 3000}</pre></div>",
        "wide": f"<p>{words}</p><div style='width: 2000px'>w</div><img src='none.png'>",
        "pale": f"<p style='color: #eee'>{words}</p>",
        "empty": "",
    }
    for name, body in bodies.items():
        page = f"<body style='background: #fff'><article>{body}</article></body>"
        (tmp_path / f"{name}.html").write_text(page, encoding="utf-8")
    found = {name: site_layout.problems(tmp_path, (name,)) for name in bodies}
    assert found["good"] == []
    assert {"no picture: none.png", "too wide: div w"} <= {
        each.partition("light: ")[2] for each in found["wide"]
    }
    assert all("hard to read" in each for each in found["pale"]) and found["pale"]
    assert len(found["empty"]) == len(site_layout.VIEWS)
