"""The lint refuses retired words and question words, and leaves the names of other projects alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from vocabulary import Rule, Vocabulary, check, findings_in, main, path_texts, summary, texts_of

RULES = Vocabulary.read()
PLAN = "packages/ir/src/litz_ir/plan/sample.py"


def found(source: str, path: str = PLAN) -> list[tuple[int, str, str]]:
    """Return line, kind and word of the findings in a file."""
    return [(each.line, each.kind, each.word) for each in check(path, texts_of(path, source), RULES)]


@pytest.mark.parametrize(
    ("source", "kind", "word"),
    [
        ("class LoopPack: ...", "class", "Pack"),
        ("def relay_words(): ...", "function", "relay"),
        ("class A:\n    def relayed(self): ...", "method", "relayed"),
        ("def f(side_by_side): ...", "parameter", "side_by_side"),
        ("class A:\n    fates: int", "field", "fates"),
        ("class A:\n    def __init__(self):\n        self._relay = 1", "field", "relay"),
        ("def f():\n    for relay in (): ...", "variable", "relay"),
        ("RELAY_WARPS = 8", "constant", "RELAY"),
        ("with_relay = f(lambda relay: 1)", "parameter", "relay"),
        ("import a as relay", "variable", "relay"),
        ("try:\n    f()\nexcept E as relay: ...", "variable", "relay"),
        ("match x:\n    case A() as relay: ...", "variable", "relay"),
        ("reason = 'scan.relay'", "string", "relay"),
    ],
)
def test_a_retired_word_is_found_in_each_kind_of_definition(source: str, kind: str, word: str) -> None:
    assert (kind, word) in [(a, b) for _, a, b in found(source)]


def test_names_of_modules_and_folders_are_found_once() -> None:
    known: set[str] = set()
    first = list(check(PLAN, path_texts("a/relay/packs.py", known), RULES))
    assert [(each.kind, each.name, each.word) for each in first] == [
        ("folder", "a/relay", "relay"),
        ("module", "a/relay/packs", "packs"),
    ]
    assert not list(check(PLAN, path_texts("a/relay/other.py", known), RULES))


def test_uses_of_names_are_not_definitions() -> None:
    assert not found("from torch.nn.utils.rnn import pack_sequence\npack_sequence([]).relay.packs()\n")


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("shared_memory = 1", PLAN),
        ("prepacked = unpack = shared_bytes = 1", PLAN),
        ("def select_scatter(): ...", PLAN),
        ("def unfold(): ...", "packages/lowering/src/litz_lowering/rules/indexing/view.py"),
        ("x = 'aten._weight_int8pack_mm.default'", PLAN),
        ("# calls _weight_int8pack_mm", PLAN),
        ("in_place = 1", PLAN),
        ("def shift_left(): ...", "packages/codegen-triton/src/litz_codegen_triton/emit/bits.py"),
        ("def product(sizes): ...", "packages/ir/src/litz_ir/symbols/term.py"),
        ("# constant folding: constants folded once", PLAN),
        ("left = right = 0", PLAN),
    ],
)
def test_allowed_compounds_and_names_of_others_pass(source: str, path: str) -> None:
    assert not found(source, path)


def test_a_word_is_refused_where_it_names_the_concept_alone() -> None:
    source = "def f(left, right): ..."
    assert found(source, "packages/scheduler/src/litz_scheduler/library/matmul_calls.py") == [
        (1, "parameter", "left"),
        (1, "parameter", "right"),
    ]
    assert not found(source, "packages/ir/src/litz_ir/symbols/prove.py")


@pytest.mark.parametrize("word", ["What", "Which", "Who", "Whose", "Where", "When", "How", "Whether", "Why"])
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""{} it is."""', 1),
        ('class A:\n    """{} it is."""', 2),
        ('class A:\n    x: int\n    """{} it is."""', 3),
        ('def f():\n    """\n    {} it is."""', 2),
        ('A = 1\n"""{} it is."""', 2),
    ],
)
def test_a_docstring_that_opens_with_a_question_word_is_found(word: str, source: str, line: int) -> None:
    assert found(source.format(word)) == [(line, "docstring", word)]


def test_question_words_elsewhere_pass() -> None:
    assert not found('"""Return what it is."""\nx = f("What is it?")\n"""Howard\'s number."""\n')


def test_prose_is_read_line_by_line() -> None:
    source = '"""A docstring.\n\nSecond: the relay of it.\n"""\nx = f(f"a {1} relay")  # a relay\n'
    assert found(source) == [(3, "docstring", "relay"), (5, "message", "relay"), (5, "comment", "relay")]


def test_a_phrase_may_cross_a_line() -> None:
    assert found("# one\n" + '"""Run side\nby side."""\n', "docs/x.py") == [(2, "docstring", "side by side")]


def test_headers_are_read_for_names_and_comments() -> None:
    source = '// a relay\nint relay_of(int x) { return relay_of("relay"); }\nstd::relay r;\n'
    assert found(source, "packages/codegen-cpp/include/litz/a.h") == [
        (1, "comment", "relay"),
        (2, "message", "relay"),
        (2, "c++ name", "relay"),
    ]


def test_links_of_pages_are_not_read_nor_code_in_changelogs() -> None:
    page = "A [page](relay.md) of a relay, `relay`.\nhttps://example.org/relay\n"
    assert found(page, "docs/a.md") == [(1, "page", "relay"), (1, "page", "relay")]
    assert found(page, "packages/ir/CHANGELOG.md") == [(1, "page", "relay")]


def test_the_repository_is_read_and_counted_by_package(tmp_path: Path) -> None:
    for path in ("packages/ir/src/a.py", "docs/b.md", "build/c.py", "skipped.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("# relays\n")
    rules = Vocabulary((Rule(("relay", "relays"), "look-back"),), skipped=("skipped.py",))
    findings = findings_in(tmp_path, rules)
    assert [str(each) for each in findings] == [
        "docs/b.md:1: page: 'relays': say look-back",
        "packages/ir/src/a.py:1: comment: 'relays': say look-back",
    ]
    assert [line.split() for line in summary(findings).splitlines()] == [
        ["word", "docs", "ir", "all"],
        ["relay", "1", "1", "2"],
        ["all", "1", "1", "2"],
    ]


def test_definitions_below_a_folder_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vocabulary.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in ("a/x.py", "b/y.py"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text('class A:\n    """A relay."""\n\n    relay: int\n')
    assert main(["--names", "a"]) == 1
    assert capsys.readouterr().out == "a/x.py:4: field A.relay: 'relay': say decoupled look-back (scan)\n"


def test_rules_are_of_use() -> None:
    for rule in RULES.rules:
        assert rule.words and rule.say and (rule.identifiers or rule.prose)
        assert all(word == word.lower() for word in (*rule.words, *rule.allow))
