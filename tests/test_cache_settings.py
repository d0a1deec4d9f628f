"""The command line's view of a cache folder, and the settings under which nothing is cached."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.compiler.config

import litz
from litz.cache.store import FOLDERS
from litz.commands.main import main


def compiled_in(folder: Path) -> None:
    """Compile and call a function with this cache folder."""
    with litz.config.patch(cache_dir=str(folder)):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: (x * 2 + 1).cos(), backend="litz")
        torch.testing.assert_close(compiled(torch.ones(64)), (torch.ones(64) * 2 + 1).cos())


def test_clear_drops_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled_in(tmp_path)
    (tmp_path / "reports" / "a").mkdir(parents=True)
    for half in (".writing-a", "without_manifest"):
        (tmp_path / "graphs" / half).mkdir()
        (tmp_path / "graphs" / half / "plan.json").write_text("{}")
    before = {kind for kind in FOLDERS if any((tmp_path / kind).iterdir())}
    assert {"graphs", "binaries", "fx_graphs"} <= before
    with litz.config.patch(cache_dir=str(tmp_path)):
        assert main(["cache", "list"]) == 0
        assert main(["cache", "clear"]) == 0
    assert not [path for kind in (*FOLDERS, "reports") for path in (tmp_path / kind).iterdir()]
    printed = capsys.readouterr().out
    assert "fx_graphs: 1 entries dropped" in printed and "reports: 1 dropped" in printed


@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")  # torch says so of its own profile
def test_nothing_is_kept_where_torch_disables_all_caches(tmp_path: Path) -> None:
    with torch.compiler.config.patch(force_disable_caches=True):
        compiled_in(tmp_path)
    assert not list(tmp_path.iterdir())
