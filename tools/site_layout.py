"""Look at pages of the built site in Chromium: `python tools/site_layout.py build/docs [--pictures FOLDER]`.

At three widths, in the light and in the dark scheme, nothing may be wider than the window unless it scrolls, every
picture has to load, no text may be of the colour behind it, and nothing may come from elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import chromium

PAGES = (
    "index", "getting-started", "integrations", "faq", "tools", "explain", "profiling", "debugging", "passes",
    "architecture", "compatibility", "operators", "glossary", "performance", "results/gpu-h200", "packages/frontend",
    "api/index", "api/litz_ir.plan", "api/litz.passes", "decisions/0012-cuda-graphs", "plan", "changes/frontend",
    "contributing/index", "examples/index",
)  # fmt: skip
"""Pages that are looked at, without their suffix: one of each kind at least."""

VIEWS = ((1400, "light"), (1400, "dark"), (800, "light"), (400, "light"), (400, "dark"))
"""Widths of windows, and schemes."""

PROBLEMS = """
(() => {
  const found = [];
  const name = (each) => `${each.tagName.toLowerCase()} ${each.textContent.trim().slice(0, 50)}`;
  const article = document.querySelector("article");
  if (!article || article.textContent.trim().length < 100) return ["the page is empty"];
  if (document.documentElement.scrollWidth > innerWidth + 1)
    found.push(`the page is ${document.documentElement.scrollWidth} pixels wide`);
  const scrolls = (each) => {
    for (let one = each.parentElement; one && one !== document.body; one = one.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX)) return true;
    return false;
  };
  for (const each of article.querySelectorAll("*")) {
    const box = each.getBoundingClientRect();
    if (box.width && box.right > innerWidth + 1 && !scrolls(each)) found.push(`too wide: ${name(each)}`);
  }
  for (const each of document.images)
    if (!each.complete || !each.naturalWidth) found.push(`no picture: ${each.getAttribute("src")}`);
  const shade = (colour) => (colour.match(/[\\d.]+/g) || []).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
  const behind = shade(getComputedStyle(document.body).backgroundColor);
  for (const each of article.querySelectorAll("p, li, td"))
    if (Math.abs(shade(getComputedStyle(each).color) - behind) < 150) found.push(`hard to read: ${name(each)}`);
  for (const each of performance.getEntriesByType("resource"))
    if (!each.name.startsWith("file:") && !each.name.startsWith("data:")) found.push(`from elsewhere: ${each.name}`);
  return [...new Set(found)];
})()
"""


def problems(site: Path, pages: tuple[str, ...] = PAGES, pictures: Path | None = None) -> list[str]:
    """Return a sentence for each problem of pages, and write pictures of them into a folder if one is given."""
    found = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        chromium.opened(site / f"{pages[0]}.html", Path(profile)) as browser,
    ):
        for page in pages:
            for width, scheme in VIEWS:
                browser.show(width, 1000, scheme)
                browser.navigate(site / f"{page}.html")
                texts: list[str] = browser.evaluate(PROBLEMS)
                found += [f"{page}, {width} pixels, {scheme}: {text}" for text in texts]
                if pictures is not None:
                    browser.picture(pictures / f"{page.replace('/', '-')}-{width}-{scheme}.png")
    return found


def main() -> int:
    """Print every problem; exit code 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the pages")
    options = parser.parse_args()
    if chromium.PROGRAM is None:
        print("there is no Chromium on this machine: the layout of the pages is not looked at")
        return 0
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    found = problems(options.site.resolve(), PAGES, options.pictures)
    print(*found, sep="\n", file=sys.stderr)
    print(f"looked at {len(PAGES)} pages in {len(VIEWS)} views: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
