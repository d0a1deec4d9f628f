"""Examples and fields in docs/interchange.md and the plan viewer are true, and the viewer passes its own tests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ir_interchange_samples import PLAN, VIEWED

from litz_ir.errors import SerialError
from litz_ir.interchange import from_interchange, to_interchange
from litz_ir.interchange.forms import FORMS
from litz_ir.text import from_text

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "interchange.md"
VIEWER = ROOT / "examples" / "plan_viewer"
EXAMPLE = re.compile(r"(<!-- example -->\n```json\n)(.*?)(```\n)", re.DOTALL)
SAMPLE = re.compile(r'(<script type="application/json" id="sample">\n)(.*?)(</script>)', re.DOTALL)


@pytest.mark.parametrize(
    ("path", "block", "plan"), [(PAGE, EXAMPLE, PLAN), (VIEWER / "index.html", SAMPLE, VIEWED)]
)
def test_shown_documents_are_those_that_litz_writes(
    path: Path, block: re.Pattern[str], plan: str, request: pytest.FixtureRequest
) -> None:
    written = to_interchange(from_text(plan))
    text = path.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        text = block.sub(lambda found: found[1] + written + found[3], text)
        path.write_text(text, encoding="utf-8")
    shown = block.search(text)
    assert shown is not None
    assert shown[2] == written, f"{path} shows another document: --update-golden rewrites it"


@pytest.mark.parametrize("root", ["LoopGraph", "FusedGraph", "Plan", "Kernel"])
def test_the_page_lists_every_top_level_field(root: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {root}\n")[1].split("\n#")[0]
    rows = "".join(re.findall(r"^\| (`.*?) \|", section, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == {field.name for field in FORMS[root].fields}


def test_the_error_that_the_page_shows_is_raised() -> None:
    graph = from_text("""graph g(%x: f32[4]) -> (%o) {
      %e = pointwise f32[i0: 4] { exp(%x[i0]) }
      %o = pointwise f32[i0: 4] { exp(%e[i0]) }
    }""")
    document = json.loads(to_interchange(graph))
    document["operations"][1]["axes"][0]["size"] = "s0"
    with pytest.raises(SerialError) as found:
        from_interchange(json.dumps(document))
    assert f"\n```text\n{found.value.message}\n```\n" in PAGE.read_text(encoding="utf-8")


def test_the_viewer_is_as_short_as_its_page_says() -> None:
    lines = (VIEWER / "plan_viewer.js").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 110


@pytest.mark.skipif(shutil.which("node") is None, reason="the viewer's tests need Node")
def test_the_viewer_passes_its_tests() -> None:
    done = subprocess.run(["node", "--test"], cwd=VIEWER, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
