"""Rules, decompositions and targets that a program registers are part of every cache key, so that no program gets the
kernels of another's. Graphs under registrations without a stable identity are not cached."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
import os
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import litz
import litz.targets
from litz.cache import key as cache_key
from litz.cache.identity import Unidentified, identities, identity, identity_of_class
from litz.targets import targets_for
from litz_codegen_cpp.target import CpuTarget
from litz_ir.device import CPU
from litz_ir.plan import Plan
from litz_ir.scalar import build
from litz_ir.target import SourceUnit
from litz_lowering import registered
from litz_lowering.contexts.registry import REGISTRY, RuleEntry

pytestmark = pytest.mark.sampled  # it compiles whole programs

# --- in other processes -------------------------------------------------------------------------------------

RULES = """
import torch
from litz_ir.scalar import build
from litz_lowering import rule
import scales

library = torch.library.Library("a", "DEF")
library.define("s(Tensor x) -> Tensor")
library.impl("s", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("a::s", torch.empty_like, lib=library)

def scaled(x, i):
    return build.op("mul", x.load(i), build.const(SCALE, x.dtype))

@rule("a.s.default")
def of_ours(ctx, x):
    return ctx.pointwise(lambda i: scaled(x, i))

@rule("aten._add_relu.Tensor")
def of_torchs(ctx, x, y, alpha=1):
    return ctx.pointwise(lambda i: scales.scaled(x, i))

torch._decomp.decomposition_table[torch.ops.aten.deg2rad.default] = lambda x: x * SCALE
"""

SCALES = """
from litz_ir.scalar import build

def scaled(x, i):
    return build.op("mul", x.load(i), build.const(SCALE, x.dtype))
"""

PROGRAM = """
import json, torch, litz, litz_lowering, rules

lowered, lower = [], litz_lowering.lower

def counted(gm, **options):
    lowered.append(options["name"])
    return lower(gm, **options)

litz_lowering.lower = counted
functions = [torch.ops.a.s, lambda x: torch.ops.aten._add_relu.Tensor(x, x), torch.deg2rad]
values = [torch.compile(lambda x: f(x) + 1, backend="litz")(torch.ones(8))[0].item() for f in functions]
print(json.dumps({"values": values, "lowered": len(lowered)}))
"""


def run(folder: Path, rules: str, scales: str) -> dict[str, Any]:
    """Run the program in a process of its own; all processes share one cache folder."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "rules.py").write_text(rules)
    (folder / "scales.py").write_text(scales)
    environment = {**os.environ, "LITZ_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(folder / "program.py")],
        capture_output=True, text=True, timeout=170, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_process_has_the_kernels_of_what_it_registered(tmp_path: Path) -> None:
    two, three = (RULES.replace("SCALE", scale) for scale in ("2.0", "3.0"))
    of_two, of_three = (SCALES.replace("SCALE", scale) for scale in ("2.0", "3.0"))
    assert run(tmp_path, two, of_two) == {"values": [3.0, 3.0, 3.0], "lowered": 3}
    assert run(tmp_path, two, of_two) == {"values": [3.0, 3.0, 3.0], "lowered": 0}
    assert run(tmp_path, three, of_two) == {"values": [4.0, 3.0, 4.0], "lowered": 3}
    assert run(tmp_path, three, of_three) == {"values": [4.0, 4.0, 4.0], "lowered": 3}, "a helper elsewhere"


def test_what_has_no_identity_is_compiled_by_each_process(tmp_path: Path) -> None:
    text = RULES + "\nclass Hidden:\n    pass\nhidden = Hidden()\nhidden.scale = 2.0\n"
    text = text.replace("SCALE", "hidden.scale")
    for _ in range(2):
        found = run(tmp_path, text, SCALES.replace("SCALE", "2.0"))
        assert found == {"values": [3.0, 3.0, 3.0], "lowered": 3}
    kept = [path for kind in ("graphs", "fx_graphs") for path in (tmp_path / "cache" / kind).iterdir()]
    assert not kept


# --- in one process -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Any:
    with litz.config.patch(cache=True, cache_dir=str(tmp_path / "kept"), fallback="error"):
        yield tmp_path / "kept"
    cache_key.versions.cache_clear()


def anew(function: Callable[..., Any], *args: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="litz")(*args)


def scaling(scale: Any) -> RuleEntry:
    def scaled(ctx: Any, x: Any) -> Any:
        factor = scale if isinstance(scale, float) else scale.factor
        return ctx.pointwise(lambda i: build.op("mul", x.load(i), build.const(factor, x.dtype)))

    return RuleEntry(scaled)


class WithoutIdentity:
    """An object that another process cannot identify."""

    factor = 5.0


@dataclass(frozen=True)
class Plain:
    """An object identified by its fields."""

    factor: float


def function(x: Tensor) -> Tensor:
    return torch.tanh(x) + 1


def test_a_rule_that_is_replaced_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x, name = torch.ones(4), "aten.tanh.default"
    torch.testing.assert_close(anew(function, x), function(x))
    for scale in (2.0, 3.0, Plain(4.0), WithoutIdentity(), 2.0):
        monkeypatch.setitem(REGISTRY._rules, name, scaling(scale))
        assert list(registered()) == ["rule of aten.tanh.default"]
        assert anew(function, x)[0] == 1 + (scale if isinstance(scale, float) else scale.factor)
    monkeypatch.delitem(REGISTRY._rules, name)
    with litz.config.patch(fallback="silent"):
        assert [left.target for left in litz.explain(function, x).fallbacks] == ["aten.tanh.default"]
    monkeypatch.undo()
    assert registered() == {}
    report = litz.explain(function, x)
    assert report.graphs[0].cached and not report.fallbacks


def test_what_is_not_kept_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: Path
) -> None:
    monkeypatch.setitem(REGISTRY._rules, "aten.tanh.default", scaling(WithoutIdentity()))
    why = (
        "the next process cannot tell that it has the same: scale, which rule of aten.tanh.default closes over, is a "
        "test_registered_in_keys.WithoutIdentity"
    )
    with caplog.at_level(logging.INFO, "litz"):
        reports = [litz.explain(function, torch.ones(4)) for _ in range(2)]
    assert [record.getMessage() for record in caplog.records if "kept" in record.getMessage()] in (
        [], [f"litz: graphs are not cached on disk: {why}"],
    )  # fmt: skip  # it is told once in a process
    assert [report.graphs[0].uncacheable for report in reports] == [why, why]
    assert "not cached on disk: the next process cannot tell" in str(reports[0])
    assert not list((folder / "graphs").iterdir()) and not list((folder / "fx_graphs").iterdir())


def test_a_decomposition_that_is_replaced_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, operator, x = torch._decomp.decomposition_table, torch.ops.aten.deg2rad.default, torch.ones(4)
    torch.testing.assert_close(anew(torch.deg2rad, x), torch.deg2rad(x))
    for scale in (2.0, 3.0):
        monkeypatch.setitem(table, operator, lambda x, scale=scale: x * scale)
        assert list(registered()) == ["decomposition of aten.deg2rad.default"]
        assert anew(torch.deg2rad, x)[0] == scale
    monkeypatch.undo()
    torch.testing.assert_close(anew(torch.deg2rad, x), torch.deg2rad(x))
    monkeypatch.setitem(table, torch.ops.aten.atleast_1d.default, lambda x: x)
    assert registered() == {}, "litz decomposes other operators"


class Other(CpuTarget):
    """A target that emits the sources of litz's own with one number changed."""

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        return tuple(replace(unit, text=unit.text.replace("41.0f", "42.0f")) for unit in super().emit(plan))


class Another(CpuTarget):
    """A target with the sources of litz's own, and another build."""

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        return super().build(replace(unit, text=unit.text.replace("41.0f", "43.0f")), folder)


def test_another_target_has_its_own_kernels(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def plus(x: Tensor) -> Tensor:
        return x.sin() + 41.0

    x = torch.zeros(64)
    for kind, expected in (
        (CpuTarget, 41.0),
        (Other, 42.0),
        (Another, 43.0),
        (Other, 42.0),
        (CpuTarget, 41.0),
    ):
        monkeypatch.setattr(litz.targets, "made_target", lambda entry, options, kind=kind: kind())
        assert type(targets_for(("cpu",), litz.config.current())[CPU]) is kind
        assert anew(plus, x)[0] == expected
    assert len(list((folder / "fx_graphs").iterdir())) == 3


def test_the_schema_of_an_operator_is_in_the_key(folder: Path) -> None:
    for tag in ((), (torch.Tag.needs_fixed_stride_order,)):
        library = torch.library.Library("litzkeys", "FRAGMENT")
        library.define("same(Tensor x) -> Tensor", tags=tag)
        library.impl("same", torch.clone, "CompositeExplicitAutograd")
        torch.library.register_fake("litzkeys::same", torch.empty_like, lib=library)
        with litz.config.patch(fallback="silent"):
            anew(lambda x: torch.ops.litzkeys.same(x) + 1, torch.ones(3))
        library._destroy()
    assert len(list((folder / "graphs").iterdir())) == 2


def test_a_changed_checkout_has_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "litz_scheduler"
    package.mkdir()
    source = package / "__init__.py"
    source.write_text("a = 1\n")
    spec = types.SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(cache_key, "find_spec", lambda name: spec)
    before = cache_key._version("litz-scheduler")
    assert before == cache_key._version("litz-scheduler")
    os.utime(source, ns=(1, 1))
    assert before != cache_key._version("litz-scheduler")
    # An installed one has its version alone.
    found = types.SimpleNamespace(version="1.2", locate_file=lambda name: tmp_path / name)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    assert cache_key._version("litz-scheduler") == "1.2"


# --- identities ---------------------------------------------------------------------------------------------


def loaded(text: str, name: str = "registering") -> dict[str, Any]:
    """The names of a module without a file, as in an interactive session."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, "<prompt>", "exec"), vars(module))
    return vars(module)


ALIKE = {
    "the same": ("def f(x): return x + 1", "\n\ndef f(x):\n    return x + 1  # further down"),
    "an item of a set": ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'b', 'a'}"),
    "what is not named": ("y = 1\ndef f(x): return x", "y = 2\ndef f(x): return x"),
}

DIFFERENT = {
    "a constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "a default": ("def f(x, y=1): return x + y", "def f(x, y=2): return x + y"),
    "a keyword's default": ("def f(x, *, y=1): return x + y", "def f(x, *, y=2): return x + y"),
    "an operation": ("def f(x): return x + 1", "def f(x): return x - 1"),
    "an attribute": ("def f(x): return x.sin()", "def f(x): return x.cos()"),
    "a constant of an inner function": ("def f(x): return lambda: x + 1", "def f(x): return lambda: x + 2"),
    "a global": ("y = 1\ndef f(x): return x + y", "y = 2\ndef f(x): return x + y"),
    "a table": ("y = {'a': [1]}\ndef f(x): return y[x]", "y = {'a': [2]}\ndef f(x): return y[x]"),
    "a helper": ("def g(x): return x\ndef f(x): return g(x)", "def g(x): return -x\ndef f(x): return g(x)"),
    "a closure": (
        "def made(y):\n    return lambda x: x + y\nf = made(1)",
        "def made(y):\n    return lambda x: x + y\nf = made(2)",
    ),
    "a partial": (
        "import functools\ndef g(x, y): return x\nf = functools.partial(g, y=1)",
        "import functools\ndef g(x, y): return x\nf = functools.partial(g, y=2)",
    ),
    "a method": (
        "class C:\n    def g(self, x): return x\ndef f(x): return C().g(x)",
        "class C:\n    def g(self, x): return -x\ndef f(x): return C().g(x)",
    ),
    "a field": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    y: int\nc = C(1)\ndef f(x): return x + c.y",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    y: int\nc = C(2)\ndef f(x): return x + c.y",
    ),
    "a cached helper": (
        "import functools\n@functools.cache\ndef g(x): return x\ndef f(x): return g(x)",
        "import functools\n@functools.cache\ndef g(x): return -x\ndef f(x): return g(x)",
    ),
}

UNKNOWN = {
    "y, which the rule names, is a builtins.object": "y = object()\ndef f(x): return y",
    "y, which the rule closes over, is a builtins.object": (
        "def made(y):\n    return lambda x: y\nf = made(object())"
    ),
    "a default of the rule[0] is a torch.Tensor": "import torch\ndef f(x, y=torch.ones(1)): return x",
    "nowhere, which the rule imports when it runs, is not loaded yet": (
        "def f(x):\n    from nowhere import y\n    return y"
    ),
    "the rule is a registering.C": "class C:\n    def __call__(self, x): return x\nf = C()",
}


@pytest.mark.parametrize("case", ALIKE)
def test_equal_functions_are_one(case: str) -> None:
    first, second = (identity(loaded(text)["f"], "f") for text in ALIKE[case])
    assert first == second


@pytest.mark.parametrize("case", DIFFERENT)
def test_other_functions_are_others(case: str) -> None:
    first, second = (identity(loaded(text)["f"], "f") for text in DIFFERENT[case])
    assert first != second


@pytest.mark.parametrize("why", UNKNOWN)
def test_what_cannot_be_told_is_said(why: str) -> None:
    with pytest.raises(Unidentified) as caught:
        identity(loaded(UNKNOWN[why])["f"], "the rule")
    assert str(caught.value) == why
    assert identities({"the rule": loaded(UNKNOWN[why])["f"]}) == (
        (), f"the next process cannot tell that it has the same: {why}",
    )  # fmt: skip


def test_modules_that_are_asked_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    ways = [
        "import asked\ndef f(x): return asked.g(x)",
        "from asked import g\ndef f(x): return g(x)",
        "def f(x):\n    import asked\n    return asked.g(x)",
        "def f(x):\n    from asked import g\n    return g(x)",
    ]
    for text in ways:
        found = set()
        for source in (
            "def g(x): return h(x)\ndef h(x): return x",
            "def g(x): return h(x)\ndef h(x): return -x",
        ):
            sys.modules.pop("asked", None)
            loaded(source, "asked")
            found.add(identity(loaded(text)["f"], "f"))
        assert len(found) == 2
    sys.modules.pop("asked")
    path = tmp_path / "asked.py"
    found = set()
    for source in (
        "def g(x): return globals()['h'](x)\ndef h(x): return x",
        "def g(x): return globals()['h'](x)",
    ):
        path.write_text(source)
        sys.modules.pop("asked", None)
        found.add(identity(loaded(ways[0])["f"], "f"))
    assert len(found) == 2, "the whole file of a helper is read"


def test_functions_of_litz_and_torch_stand_by_their_names() -> None:
    assert identity(torch.nn.functional.gelu, "a") == identity(torch.nn.functional.gelu, "b")
    assert identity(CpuTarget, "a") != identity(Plan, "a")
    partials = [functools.partial(scaling, scale) for scale in (1.0, 2.0)]
    assert identity(partials[0], "a") != identity(partials[1], "a")


def test_all_of_a_targets_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for k in range(2):
        folder = tmp_path / f"{k}" / "package_of_a_target"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("class Target:\n    pass\n")
        (folder / "helpers.c").write_text(f"int answer = {k};\n")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder.parent)
            patch.delitem(sys.modules, "package_of_a_target", raising=False)
            module = __import__("package_of_a_target")
            found.add(identity_of_class(module.Target))
    assert len(found) == 2 and not any(unkept for _, unkept in found)
