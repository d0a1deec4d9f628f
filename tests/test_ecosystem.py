"""Tests of the judge of other libraries' programs: its arithmetic, its verdicts and its counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ecosystem.catalogue import LIBRARIES, Case
from ecosystem.execution import in_double, prepared, reference, results, rounded_otherwise
from ecosystem.programs import Backend, Prepare, Step, inference, training
from ecosystem.report import line, tables, write
from ecosystem.row import ELSEWHERE, PASSED, Outcome, Row, read
from ecosystem.worker import compared_with_plain, judged, load
from torch import nn
from zoo.judge import far_apart

import litz

TWO = range(2)


def drawn(backend: Backend) -> Step:
    """Draw weights, inputs and a dropout mask, and train."""
    model = nn.Sequential(nn.Linear(20, 30), nn.Dropout(0.3), nn.Linear(30, 2))
    call = backend.compile(model)
    return training(
        lambda x: call(x.float()).square().mean(), model, [(torch.randn(5, 20),), (torch.rand(5, 20),)]
    )


def eager(prepare: Prepare) -> Any:
    return results(prepared(prepare, Backend()), TWO)


def test_double_precision_draws_the_same_numbers() -> None:
    expected, exact = eager(drawn), in_double(drawn, TWO)
    assert far_apart(expected, exact) is None
    assert {tensor.dtype for tensor in exact.values()} == {torch.float64}
    assert {label.split()[0] for label in exact} == {"loss", "gradient"} and len(exact) == 2 * 5


def test_other_roundings_are_near_and_not_equal() -> None:
    expected, other = eager(drawn), rounded_otherwise(drawn, TWO, 0)
    assert far_apart(expected, other) is None
    assert any(not torch.equal(expected[label], other[label]) for label in expected)


def test_a_reference_of_another_computation_is_single_precision() -> None:
    def chooses(backend: Backend) -> Step:
        x = torch.randn(4)
        return lambda number: x if x.dtype == torch.float32 else -x

    exact, why = reference(chooses, TWO, eager(chooses))
    assert why and all(tensor.dtype == torch.float32 for tensor in exact.values())


def outcome_of(prepare: Prepare, folder: Path, backend: str = "litz") -> Outcome:
    with litz.config.patch(cache_dir=str(folder), fallback="warn"):
        return judged(prepare, TWO, backend, eager(prepare), in_double(prepare, TWO))


def test_a_right_program_passes_with_its_counts(tmp_path: Path) -> None:
    def broken(backend: Backend) -> Step:
        def function(x: torch.Tensor) -> torch.Tensor:
            x = x.sin().sort().values
            torch._dynamo.graph_break()
            return x.cos()

        return inference(backend.compile(function), [(torch.randn(4),), (torch.randn(5),)])

    outcome = outcome_of(broken, tmp_path)
    assert outcome.verdict == PASSED
    assert (outcome.graphs, outcome.breaks) == (4, 2) and outcome.recompiles == 2
    assert outcome.kernels and [name.split(":")[0] for name in outcome.fallbacks] == ["aten.sort.default"]
    plain = outcome_of(broken, tmp_path, "aot_eager")
    assert (plain.graphs, plain.breaks, plain.recompiles, plain.kernels) == (4, 2, 2, 0)


def compiled_only(change: Any) -> Prepare:
    def prepare(backend: Backend) -> Step:
        call = inference(backend.compile(lambda x: x * 2 + 1), [(torch.randn(4),)])
        return call if backend.name is None else lambda number: change(call(number))

    return prepare


def test_a_wrong_value_and_an_error_are_reported(tmp_path: Path) -> None:
    wrong = outcome_of(compiled_only(lambda x: x * 1.001), tmp_path)
    assert wrong.verdict == "wrong" and "output 0" in wrong.reason
    raises = outcome_of(compiled_only(lambda x: x.no_such_attribute), tmp_path)
    assert raises.verdict == "raises" and "no_such_attribute" in raises.reason
    assert compared_with_plain(raises, raises).verdict == ELSEWHERE
    assert compared_with_plain(wrong, replace(wrong, verdict=PASSED)) == wrong


def test_rows_are_read_and_written_as_pages(tmp_path: Path) -> None:
    case = Case("torch", "jacobian")
    row = Row(case)
    row.receive(("reference", "2", "", 1.0))
    row.receive(("running", "aot_eager"))
    row.receive(("aot_eager", Outcome(PASSED, graphs=1)))
    row.receive(("running", "litz"))
    row.lost("crash", "signal SIGSEGV")
    assert not row.passed() and row.outcomes["litz"].verdict == "crash" and "SIGSEGV" in line(row)
    row.receive(("litz", Outcome(PASSED, graphs=2, fallbacks={"aten.sort.default: sorting": 3})))
    path = tmp_path / "results.jsonl"
    path.write_text(row.to_line() + "\n")
    rows = read(path)
    assert rows[case].outcomes == row.outcomes and "graphs 2, 1 under aot_eager" in line(rows[case])
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nText.\n")
    for _ in range(2):
        write(page, rows)
    assert (
        page.read_text().startswith("# Title\n\nText.\n\n| library |")
        and page.read_text().count("# Title") == 1
    )
    assert "| torch | jacobian | pass | 2 / 1 | 0 | 0 | 3 |" in tables(rows)
    assert "| `aten.sort.default` | sorting | 3 | torch |" in tables(rows)


def test_every_library_has_programs() -> None:
    assert all(library.path.is_file() and library.programs() for library in LIBRARIES)
    assert len({library.path for library in LIBRARIES}) == len(LIBRARIES)


@pytest.mark.parametrize("name", ["ensemble_by_vmap", "transformer_encoder_inference"])
def test_programs_of_torch_are_right(name: str, tmp_path: Path) -> None:
    prepare, steps = load(Case("torch", name))
    with litz.config.patch(cache_dir=str(tmp_path), fallback="warn"):
        expected = results(prepared(prepare, Backend()), steps)
        exact, single = reference(prepare, steps, expected)
        assert not single
        assert judged(prepare, steps, "litz", expected, exact).verdict == PASSED
