"""Operations on cache folders, from Python and from the command line."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
import torch

import litz
import litz.cache
from litz.cache.name_sets import DEMOTIONS, NameSets
from litz.cache.store import FOLDERS, MANIFEST, Store
from litz.commands.main import main
from litz_ir.errors import CacheError


def compiled_in(folder: Path, size: int = 64, scale: float = 2.0, **options: object) -> None:
    """Compile and call a function with this cache folder."""
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * scale + 1).cos()

    with litz.config.patch(cache_dir=str(folder), **options):
        x = torch.ones(size)
        torch.testing.assert_close(torch.compile(function, backend="litz", dynamic=False)(x), function(x))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with one function."""
    folder = tmp_path_factory.mktemp("filled")
    compiled_in(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder."""
    found = folder.rglob("*")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if path.is_file()}


def test_entries_are_listed(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = litz.cache.entries(filled)
    assert [each.kind for each in found] == ["graphs", "binaries", "fx_graphs"]
    assert sum(each.bytes for each in found) == sum(map(len, files(filled).values()))
    assert found[0].graph.startswith("inference_") and "test_cache_tools.py" in found[0].graph
    with litz.config.patch(cache_dir=str(filled)):
        assert main(["cache", "ls"]) == main(["cache", "list"]) == main(["cache", "verify"]) == 0
    printed = capsys.readouterr().out
    assert found[0].key[:12] in printed and "graphs: 1 whole, 0 damaged" in printed


@pytest.mark.parametrize("key", ["", "secret"])
def test_an_archive_moves_a_cache(filled: Path, tmp_path: Path, key: str) -> None:
    with litz.config.patch(cache_remote_key=key):
        assert litz.cache.export(tmp_path / "file", filled) == 3
        assert litz.cache.import_(tmp_path / "file", tmp_path / "to") == 3
        assert files(tmp_path / "to") == files(filled)
        assert [each.damaged for each in litz.cache.verify(tmp_path / "to")] == [0, 0, 0]
        whole = (tmp_path / "file").read_bytes()
        for damaged in (
            whole[:-1],
            whole[:40],
            whole[:5],
            b"",
            whole[:200] + b"x" + whole[201:],
            whole + b"x",
        ):
            (tmp_path / "file").write_bytes(damaged)
            with pytest.raises(CacheError):
                litz.cache.import_(tmp_path / "file", tmp_path / "other")
    (tmp_path / "file").write_bytes(whole)
    for other in ("", "secret", "another"):
        if other != key:
            with litz.config.patch(cache_remote_key=other), pytest.raises(CacheError, match=r"key|signed"):
                litz.cache.import_(tmp_path / "file", tmp_path / "other")
    assert not (tmp_path / "other").exists(), "nothing is written of a file that is refused"


def test_an_archive_that_changes_after_the_check_changes_nothing(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    with litz.config.patch(cache_remote_key="secret"):
        litz.cache.export(file, filled)
    compare, whole = hmac.compare_digest, file.read_bytes()

    def compare_and_change(one: bytes, other: bytes) -> bool:
        equal = compare(one, other)
        with file.open("r+b") as out:  # no checksum of an entry notices other names of entries
            out.write(whole.replace(b"graphs/", b"demons/"))
        return equal

    monkeypatch.setattr(hmac, "compare_digest", compare_and_change)
    with litz.config.patch(cache_remote_key="secret"):
        assert litz.cache.import_(file, tmp_path / "to") == 3
    assert file.read_bytes() != whole and files(tmp_path / "to") == files(filled)


def test_a_record_that_is_longer_than_its_archive(tmp_path: Path) -> None:
    text = b"litz cache 1\n" + (1 << 62).to_bytes(8, "little")
    (tmp_path / "file").write_bytes(text + hashlib.sha256(text).digest())
    with pytest.raises(CacheError, match="longer than the file"):
        litz.cache.import_(tmp_path / "file", tmp_path / "to")


def test_folders_are_merged(filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled_in(tmp_path / "b", scale=3.0)
    key = "0" * 64
    for folder, names in (("b", {"%1", "%2"}), ("into", {"%3"})):
        NameSets(Store(tmp_path / folder / "demotions"), DEMOTIONS).write(key, frozenset(names))
    damaged = next((tmp_path / "b" / "graphs").iterdir()) / "plan.json"
    damaged.write_bytes(b"{}")
    assert main(["cache", "merge", str(tmp_path / "into"), str(filled), str(tmp_path / "b")]) == 0
    assert "5 entries added" in capsys.readouterr().out
    assert files(filled).items() <= files(tmp_path / "into").items()
    joined = NameSets(Store(tmp_path / "into" / "demotions"), DEMOTIONS).read(key)
    assert joined == {"%1", "%2", "%3"}
    assert litz.cache.merge(tmp_path / "into", filled) == 0


def test_a_quota_is_needed_and_kept(filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    litz.cache.merge(tmp_path, filled)
    with litz.config.patch(cache_dir=str(tmp_path)):
        assert main(["cache", "gc"]) == 1 and "no quota is given" in capsys.readouterr().err
        assert main(["cache", "gc", "--quota", "1 TB"]) == 0
        assert len(litz.cache.entries()) == 3
        assert litz.cache.gc("1").entries == 3 and litz.cache.entries() == ()


def test_clear_leaves_nothing(filled: Path, tmp_path: Path) -> None:
    litz.cache.merge(tmp_path, filled)
    (tmp_path / "graphs" / ".usage").write_text("1\n")
    (tmp_path / "graphs" / "link").symlink_to(filled)
    dropped = litz.cache.clear(tmp_path)
    assert {kind for kind, number in dropped.items() if number} == {"graphs", "binaries", "fx_graphs"}
    assert not [path for kind in FOLDERS for path in (tmp_path / kind).glob("*")]
    assert list((filled / "graphs").glob(f"*/{MANIFEST}")), "what a link names stays"


@pytest.mark.parametrize(
    ("changed", "differing", "words"),
    [
        ({"size": 65}, {"inputs"}, "(65)"),
        ({"scale": 5.0}, {"code"}, "float:5.0"),
        ({"numerics": "fast"}, {"options"}, "numerics=fast"),
        ({"force": "unroll=2"}, {"scheduler"}, "unroll=2"),
    ],
)
def test_a_miss_names_what_differs(
    filled: Path, tmp_path: Path, changed: dict[str, Any], differing: set[str], words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    litz.cache.merge(tmp_path, filled)
    alone = litz.cache.why_miss(folder=tmp_path)
    assert alone is not None and alone.nearest == "" and "no other graph" in str(alone)
    compiled_in(tmp_path, **changed)
    missed = litz.cache.why_miss(folder=tmp_path)
    assert missed is not None and missed.nearest == alone.key
    assert {name for name, _, _ in missed.differences} == differing
    assert words in "".join(str(missed).split())
    with litz.config.patch(cache_dir=str(tmp_path)):
        assert main(["cache", "why-miss", missed.key[:12]]) == 0
        assert main(["cache", "why-miss", "unknown"]) == 1
    assert missed.key[:12] in capsys.readouterr().out


def test_a_miss_is_compared_with_layers_too(filled: Path, tmp_path: Path) -> None:
    compiled_in(tmp_path, size=66, cache_layers=str(filled))
    with litz.config.patch(cache_dir=str(tmp_path), cache_layers=str(filled)):
        missed = litz.cache.why_miss()
    assert missed is not None and missed.nearest == litz.cache.entries(filled)[0].key


def test_files_that_are_missing_are_one_line(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, into = str(tmp_path / "missing"), tmp_path / "into"
    with litz.config.patch(cache_dir=str(filled)):
        assert main(["cache", "import", missing]) == 1
        assert main(["cache", "export", f"{missing}/file"]) == 1
        assert main(["cache", "merge", str(into), str(filled), missing]) == 1
    printed = capsys.readouterr().err
    assert printed.count("No such file or directory") == 2 and f"there is no folder {missing}" in printed
    assert not into.exists()


def test_a_miss_of_a_folder_without_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with litz.config.patch(cache_dir=str(tmp_path)):
        assert main(["cache", "why-miss"]) == main(["cache", "why-miss", "ab"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == "the cache folder has no graph" and "with such a key" in second


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="why_miss"):
        litz.cache.forget  # noqa: B018


def test_explain_says_why_a_graph_was_not_found(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 3 + 1).cos()

    with litz.config.patch(cache_dir=str(tmp_path), fallback="error"):
        reports = []
        for size in (64, 65, 65):
            torch._dynamo.reset()
            (graph,) = (report := litz.explain(function, torch.ones(size))).graphs
            reports.append((graph.miss, str(report)))
        torch._dynamo.reset()
        with litz.config.patch(cache=False):
            (uncached,) = litz.explain(function, torch.ones(66)).graphs
    (first, _), (second, text), (third, found) = reports
    assert first == "the cache has no other graph"
    assert "the nearest entry is" in second and "inputs: 0:tensor/torch.float32/cpu/(65)" in second
    assert "not found in the cache: the nearest entry is" in text and "(64)" in text
    assert third == uncached.miss == "" and "not found in the cache" not in found
