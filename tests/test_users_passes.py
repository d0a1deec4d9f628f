"""Passes of users over FX graphs, loop graphs and plans: their effect, their checks, their reports, and cache keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph

import litz
from litz.compilation import Compilation
from litz.debugging.judging_process import JudgingProcess
from litz.debugging.replay import Replay
from litz.loading import Compiled
from litz.passes import Passes, ReportingPass
from litz_ir.errors import ConfigError, UserPassError

pytestmark = pytest.mark.sampled  # it compiles whole programs

aten = torch.ops.aten

GRAPH_STAGES = ("pre_grad", "joint_before", "joint_after", "post_grad_before", "post_grad_after")


@dataclass
class Retarget:
    """A pass that replaces the target of calls, as torch's ``CustomGraphPass`` is written."""

    old: Any
    new: Any
    identifier: object = "retarget"
    seen: list[list[str]] = field(default_factory=list)

    def __call__(self, graph: Graph) -> None:
        self.seen.append([str(node.target) for node in graph.nodes if node.op == "call_function"])
        for node in graph.find_nodes(op="call_function", target=self.old):
            node.target = self.new

    def uuid(self) -> object:
        return self.identifier


def sin_to_cos(identifier: object = "retarget") -> Retarget:
    return Retarget(aten.sin.default, aten.cos.default, identifier)


def program(x: Tensor) -> Tensor:
    return torch.sin(x) * 2 + 1


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    torch._dynamo.reset()
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "kept"), fallback="error"):
        yield tmp_path / "kept"


def numbers(*shape: int) -> Tensor:
    return torch.linspace(-2.0, 2.0, torch.Size(shape).numel()).reshape(shape)


# --- stages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", GRAPH_STAGES)
def test_a_pass_of_each_stage_changes_the_program(stage: str) -> None:
    item = Retarget(torch.sin, torch.cos) if stage == "pre_grad" else sin_to_cos()
    with litz.config.patch(passes=Passes(**{stage: (item,)})):
        found = torch.compile(program, backend="litz")(numbers(8))
    torch.testing.assert_close(found, torch.cos(numbers(8)) * 2 + 1)
    assert len(item.seen) == 1


def test_stages_of_a_gradient_see_the_graphs_they_are_named_after() -> None:
    passes = {stage: Retarget("nothing", None) for stage in GRAPH_STAGES}
    x = numbers(8).requires_grad_()
    with litz.config.patch(passes=Passes(**{stage: (item,) for stage, item in passes.items()})):
        torch.compile(program, backend="litz")(x).sum().backward()
    assert len(passes["pre_grad"].seen) == 1 and "sin" in passes["pre_grad"].seen[0][0]
    for stage in ("joint_before", "joint_after"):
        (joint,) = passes[stage].seen
        assert {"aten.sin.default", "aten.cos.default"} <= set(joint)
    for stage in ("post_grad_before", "post_grad_after"):
        forward, backward = passes[stage].seen
        assert "aten.sin.default" in forward and "aten.cos.default" not in forward
        assert "aten.cos.default" in backward
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.cos(numbers(8)) * 2)


def test_a_joint_pass_changes_value_and_gradient() -> None:
    x = numbers(8).requires_grad_()
    item = Retarget(aten.cos.default, aten.sin.default)  # the gradient's cos alone
    with litz.config.patch(passes=Passes(joint_before=(item,))):
        found = torch.compile(program, backend="litz")(x)
        found.sum().backward()
    torch.testing.assert_close(found, program(numbers(8)), check_stride=True)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.sin(numbers(8)) * 2)


def test_the_last_stage_sees_no_views_that_change_nothing() -> None:
    def viewed(x: Tensor) -> Tensor:
        return torch.sin(x.view(4, 2).expand(4, 2)) + 1

    before, after = Retarget("nothing", None), Retarget("nothing", None)
    with litz.config.patch(passes=Passes(post_grad_before=(before,), post_grad_after=(after,))):
        for dynamic in (False, True):
            torch._dynamo.reset()
            torch.compile(viewed, backend="litz", dynamic=dynamic)(numbers(4, 2))
    assert all(any("expand" in name or "view" in name for name in seen) for seen in before.seen)
    assert [seen[-2:] for seen in after.seen] == [["aten.sin.default", "aten.add.Tensor"]] * 2
    assert not any("expand" in name for seen in after.seen for name in seen)


def test_functions_of_higher_order_operators_are_passed_over_too() -> None:
    def branched(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: x - 1, (x,))

    with litz.config.patch(passes=Passes(post_grad_after=(sin_to_cos(),))):
        found = torch.compile(branched, backend="litz")(numbers(8) + 2)
    torch.testing.assert_close(found, torch.cos(numbers(8) + 2))


def test_spellings_of_torch_compile(caplog: pytest.LogCaptureFixture) -> None:
    spelled = {
        "pre_grad_custom_pass": Retarget(torch.sin, torch.sinh),
        "joint_custom_pre_pass": Retarget(aten.sinh.default, aten.tanh.default),
        "joint_custom_post_pass": Retarget(aten.tanh.default, aten.erf.default),
        "post_grad_custom_pre_pass": Retarget(aten.erf.default, aten.atan.default),
        "post_grad_custom_post_pass": Retarget(aten.atan.default, aten.cos.default),
    }
    found = torch.compile(program, backend="litz", options=spelled)(numbers(8))
    torch.testing.assert_close(found, torch.cos(numbers(8)) * 2 + 1)
    assert set(spelled) <= set(litz.list_options())
    nothing = torch.compile(program, backend="litz", options={"post_grad_custom_post_pass": None})
    torch.testing.assert_close(nothing(numbers(8)), program(numbers(8)))


def test_passes_of_options_follow_those_of_the_config() -> None:
    first, second = sin_to_cos(), Retarget(aten.cos.default, aten.tanh.default)
    with litz.config.patch(passes=Passes(post_grad_after=(first,))):
        options = {"post_grad_custom_post_pass": second}
        found = torch.compile(program, backend="litz", options=options)(numbers(8))
    torch.testing.assert_close(found, torch.tanh(numbers(8)) * 2 + 1)


def test_graphs_given_to_litz_are_not_changed() -> None:
    def plain(x: Tensor) -> Tensor:
        return aten.sin.default(x) + 1

    gm = torch.fx.experimental.proxy_tensor.make_fx(plain, tracing_mode="fake")(numbers(8))
    code = gm.code
    with litz.config.patch(passes=Passes(post_grad_after=(sin_to_cos(),))):
        call = litz.compile_fx_inner(gm, [numbers(8)])
        torch.testing.assert_close(call(numbers(8)), torch.cos(numbers(8)) + 1)
    with litz.config.patch(passes=Passes(pre_grad=(sin_to_cos("2"),))):
        torch.testing.assert_close(litz.compile_fx(gm, [numbers(8)])(numbers(8)), torch.cos(numbers(8)) + 1)
    assert gm.code == code


def test_a_graph_that_falls_back_runs_as_passes_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(compilation: Compilation) -> Compiled:
        raise NotImplementedError("by the test")

    monkeypatch.setattr(Compilation, "run", fail)
    with litz.config.patch(passes=Passes(post_grad_after=(sin_to_cos(),)), fallback="silent"):
        assert litz.explain(program, numbers(8)).uncompiled == 1
        found = torch.compile(program, backend="litz")(numbers(8))
    torch.testing.assert_close(found, torch.cos(numbers(8)) * 2 + 1)


def test_the_self_check_compares_with_the_graph_that_passes_left(caplog: pytest.LogCaptureFixture) -> None:
    with litz.config.patch(
        passes=Passes(post_grad_after=(sin_to_cos(),)), self_check="first", fallback="warn"
    ):
        found = torch.compile(program, backend="litz")(numbers(8))
    torch.testing.assert_close(found, torch.cos(numbers(8)) * 2 + 1)
    assert not [each for each in caplog.records if "self-check" in each.getMessage()]


# --- checks -------------------------------------------------------------------------------------------------


def without_metadata(graph: Graph) -> None:
    (node,) = graph.find_nodes(op="call_function", target=aten.sin.default)
    with graph.inserting_after(node):
        half = graph.call_function(aten.mul.Tensor, (node.args[0], 0.5))
    with graph.inserting_after(half):
        made = graph.call_function(aten.sum.dim_IntList, (half, [0], True))
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def test_nodes_without_metadata_get_it_and_their_readers_new_one() -> None:
    def summed(x: Tensor) -> Tensor:
        return torch.sin(x) * torch.ones(3, 4)

    for dynamic in (False, True):
        torch._dynamo.reset()
        with litz.config.patch(passes=Passes(post_grad_after=(without_metadata,))):
            found = torch.compile(summed, backend="litz", dynamic=dynamic)(numbers(3, 4))
        torch.testing.assert_close(found, (numbers(3, 4) / 2).sum(0, keepdim=True) * torch.ones(3, 4))


def erases_a_used_node(graph: Graph) -> None:
    (node,) = graph.find_nodes(op="call_function", target=aten.sin.default)
    node._remove_from_list()


def raises(graph: Graph) -> None:
    raise ValueError("no such luck")


def drops_a_result(graph: Graph) -> None:
    output = graph.output_node()
    results: Any = output.args[0]
    output.args = ((*results, results[0]),)


def widens_the_result(graph: Graph) -> None:
    output = graph.output_node()
    results: Any = output.args[0]
    with graph.inserting_before(output):
        wide = graph.call_function(aten._to_copy.default, (results[0],), {"dtype": torch.float64})
    output.args = ((wide,),)


def adds_an_input(graph: Graph) -> None:
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        graph.placeholder("another")


def wrong_arguments(graph: Graph) -> None:
    (node,) = graph.find_nodes(op="call_function", target=aten.sin.default)
    with graph.inserting_after(node):
        made = graph.call_function(aten.mm.default, (node, node))
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)


class _ReportsNothing(ReportingPass):
    """A pass whose report is no sequence."""

    __name__ = "reports_nothing"

    def rewrite(self, graph: Graph) -> None:
        return None

    def uuid(self) -> object:
        return "nothing"


WRONG = {
    _ReportsNothing(): "the pass reports_nothing of the stage post_grad_after failed: TypeError",
    raises: "the pass raises of the stage post_grad_after failed: ValueError: no such luck",
    erases_a_used_node: "left a malformed graph",
    drops_a_result: "changed the number of results from 1 to 2",
    widens_the_result: r"changed result 0 from torch.float32 \(8,\) on cpu to torch.float64",
    adds_an_input: "changed the inputs of the graph",
    wrong_arguments: "left nodes whose results cannot be inferred",
}


@pytest.mark.parametrize("fallback", ["warn", "error"])
@pytest.mark.parametrize("item", WRONG, ids=lambda item: item.__name__)
def test_an_error_of_a_pass_names_it_and_is_always_raised(
    item: Callable[[Graph], None], fallback: str
) -> None:
    with (
        litz.config.patch(passes=Passes(post_grad_after=(item,)), fallback=fallback),
        pytest.raises(Exception, match=WRONG[item]) as caught,
    ):
        torch.compile(program, backend="litz")(numbers(8))
    found: BaseException | None = caught.value
    while found is not None and not isinstance(found, UserPassError):
        found = found.__cause__ or found.__context__
    assert (
        isinstance(found, UserPassError) and item.__name__ in found.message and "disable_passes" in found.hint
    )


@pytest.mark.parametrize("stage", GRAPH_STAGES)
def test_a_pass_that_raises_at_any_stage_stops_the_compilation(stage: str) -> None:
    x = numbers(8).requires_grad_()
    with (
        litz.config.patch(passes=Passes(**{stage: (raises,)}), fallback="warn"),
        pytest.raises(Exception, match=f"the pass raises of the stage {stage} failed"),
    ):
        torch.compile(program, backend="litz")(x).sum().backward()


def test_what_is_no_pass_is_refused() -> None:
    cases: Sequence[tuple[dict[str, Any], str]] = (
        ({"post_grad_after": sin_to_cos()}, "give a tuple of passes"),
        ({"post_grad_after": (Retarget,)}, "give an instance"),
        ({"post_grad_after": (3,)}, "no pass over FX graphs"),
        ({"loops": (sin_to_cos(),)}, "it has no name, ulp, apply"),
    )
    for wrong, said in cases:
        with pytest.raises(ConfigError) as caught:
            Passes(**wrong)
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match="takes Passes"), litz.config.patch(passes=(sin_to_cos(),)):
        pass


# --- reports ------------------------------------------------------------------------------------------------


def test_explain_lists_the_passes_that_ran() -> None:
    passes = Passes(post_grad_before=(Retarget("nothing", None, 1),), post_grad_after=(sin_to_cos(),))
    with litz.config.patch(passes=passes):
        reports = [litz.explain(program, numbers(8)) for _ in range(2)]
    assert [report.graphs[0].cached for report in reports] == [False, True]
    for report in reports:
        assert [(each.stage, each.subject, each.verdict) for each in report.passes] == [
            ("passes.post_grad_before", "Retarget", "unchanged"),
            ("passes.post_grad_after", "Retarget", "changed"),
        ]
        assert "pass of post_grad_after: changed Retarget: it changed the program" in str(report)
    assert "pass of" not in str(litz.explain(program, numbers(8)))


def test_a_pass_is_left_out_by_name() -> None:
    passes = Passes(post_grad_after=(sin_to_cos(), without_metadata))
    with litz.config.patch(passes=passes, disable_passes="Retarget without_metadata"):
        report = litz.explain(program, numbers(8))
        found = torch.compile(program, backend="litz")(numbers(8))
    assert report.passes == () and not report.graphs[0].uncacheable
    torch.testing.assert_close(found, program(numbers(8)))


def test_bisection_runs_the_passes_of_the_program() -> None:
    with litz.config.patch(passes=Passes(post_grad_after=(sin_to_cos(),))):
        found = litz.bisect(program, (numbers(8),))
    assert found.stage == "user-pass" and "stage post_grad_after" in found.name


def test_minification_gives_its_process_and_its_repro_the_options_without_passes(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def failure(process: JudgingProcess, graph: Path, replay: Replay, *how: object) -> str:
        given.append(json.loads(replay.to_json())["options"])
        return "wrong"

    monkeypatch.setattr(JudgingProcess, "failure", failure)
    gm = torch.fx.symbolic_trace(lambda x: torch.sin(x) * 2 + 1)
    with litz.config.patch(passes=Passes(post_grad_after=(sin_to_cos(),)), verify=False, numerics="fast"):
        found = litz.minify(gm, [numbers(8)], check="wrong", into=tmp_path / "small")
    assert given[0] == {"numerics": "fast", "cache": True, "cache_dir": str(folder)}
    assert Replay.read(found.folder).options == {"numerics": "fast"}


# --- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (without_metadata, "the pass without_metadata of the stage post_grad_after has no uuid()"),
        (sin_to_cos(None), "uuid() of the pass Retarget of the stage post_grad_after is None"),
        (sin_to_cos(object()), "is a object, which other processes cannot compare"),
    ],
)
def test_a_pass_without_an_identifier_is_not_cached_and_says_so(item: Any, why: str, folder: Path) -> None:
    def summed(x: Tensor) -> Tensor:
        return torch.sin(x) * torch.ones(1, 4)

    with litz.config.patch(passes=Passes(post_grad_after=(item,))):
        reports = [litz.explain(summed, numbers(1, 4)) for _ in range(2)]
    for report in reports:
        assert why in report.graphs[0].uncacheable and not report.graphs[0].cached
        assert "not cached on disk" in str(report)
    assert not list((folder / "graphs").iterdir()) and not list((folder / "fx_graphs").iterdir())


def test_another_identifier_misses_and_the_same_one_hits(folder: Path) -> None:
    def run(item: Retarget, stage: str = "post_grad_after") -> Tensor:
        torch._dynamo.reset()
        with litz.config.patch(passes=Passes(**{stage: (item,)})):
            found: Tensor = torch.compile(program, backend="litz")(numbers(8))
        return found

    first, again = sin_to_cos(("a", 1)), sin_to_cos(("a", 1))
    torch.testing.assert_close(run(first), run(again))
    assert first.seen and not again.seen, "the second is found before AOTAutograd, so no pass runs"
    for item, stage in (
        (sin_to_cos(("a", 2)), "post_grad_after"),
        (sin_to_cos(("a", 1)), "post_grad_before"),
    ):
        run(item, stage)
        assert item.seen, "it was compiled anew"
    assert len(list((folder / "fx_graphs").iterdir())) == len(list((folder / "graphs").iterdir())) == 3


PROGRAM = """
import json, sys, torch, litz, litz_lowering

lowered, lower = [], litz_lowering.lower

def counted(gm, **options):
    lowered.append(options["name"])
    return lower(gm, **options)

litz_lowering.lower = counted

class ToCos:
    def __call__(self, graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default):
            node.target = torch.ops.aten.cos.default

    def uuid(self):
        return sys.argv[1]

options = {"joint_custom_pre_pass": ToCos()}
static, dynamic = (
    torch.compile(lambda x: torch.sin(x) + 1, backend="litz", options=options, dynamic=dynamic)(torch.zeros(n))
    for dynamic, n in ((False, 8), (True, 9))
)
print(json.dumps({"values": [static[0].item(), dynamic[0].item()], "lowered": len(lowered)}))
"""


def test_other_processes_find_graphs_of_the_same_identifier(tmp_path: Path) -> None:
    def run(identifier: str) -> dict[str, Any]:
        environment = {**os.environ, "LITZ_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", PROGRAM, identifier]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    # The dynamic graph is not in the FX graph cache: the key of its AOT graph decides.
    assert run("first") == {"values": [2.0, 2.0], "lowered": 2}
    assert run("first") == {"values": [2.0, 2.0], "lowered": 0}
    assert run("second") == {"values": [2.0, 2.0], "lowered": 2}
