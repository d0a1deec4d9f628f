"""Rules by which tests are set aside: they examine Inductor itself, so that no other compiler can pass them."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern in the source of a test, and what a test that contains it examines."""

    pattern: re.Pattern[str]
    examined: str


RULES = (
    Rule(
        re.compile(
            r"run_and_get\w*code|run_fw_bw_and_get_code|get_triton_code|FileCheck|check_and_run|source_codes?\b"
            r"|_run_and_assert_no_indirect_indexing|_check_has_dynamic_shape|aten_fallback_code"
        ),
        "the source that Inductor generates",
    ),
    Rule(
        re.compile(
            r"\bmetrics\.(?!reset\b|\w+ = 0\b)\w|\bcounters\b|count_numel|num_bytes_accessed|check_vecn"
        ),
        "Inductor's counters",
    ),
    Rule(
        re.compile(
            r"torch\._inductor\.(?!config\b|exc\b|test_case\b|metrics\b)\w+|_inductor import (?!config\b)"
            r"|inductor_prims|add_scheduler_init_hook|compile_fx_inner|OptimizationContext|\bcpu_vec_isa\b|V\.graph"
            r"|GraphLowering|mkldnn_fusion|DataTypePropagation|CppPrinter|complex_memory_overlap|CachingAutotuner"
        ),
        "modules of Inductor",
    ),
    Rule(
        re.compile(
            r"aoti|AOTI|aot_inductor|aot_compile|assertLogs|log_settings|capture_stderr|capture_logs|make_logging"
        ),
        "packages or logs of Inductor",
    ),
    Rule(
        re.compile(r"BackendCompilerFailed|InductorError|LoweringException|GuardOnDataDependent"),
        "the errors by which Inductor refuses a program",
    ),
)
"""Rules, of which the first one that applies is a test's reason."""


CHECKS_LEFT_OUT = ("assertGeneratedKernelCountEqual", "check_metrics_vec_kernel_count")
"""Functions of PyTorch's tests that only compare a counter of Inductor: they do nothing, so that the values which
the same tests compare are judged."""

_HELPER = re.compile(r"self\.((?!common\b|assert)\w+)\(")


def reason_to_set_aside(test: Callable[..., Any], owner: type | None = None) -> str:
    """Return the part of Inductor that a test, or a method of its class `owner` that it calls, examines; empty if it
    examines values alone, or if its source is not available."""
    pending, sources = [test], {}
    while pending:
        function = _as_written(pending.pop())
        if function in sources or not inspect.isfunction(function):
            continue
        try:
            sources[function] = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            continue
        if "/torch/" not in inspect.getfile(function):
            helpers = (getattr(owner, name, None) for name in _HELPER.findall(sources[function]))
            pending += [helper for helper in helpers if callable(helper)]
    text = "\n".join(sources.values())
    return next((rule.examined for rule in RULES if rule.pattern.search(text)), "")


def _as_written(test: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that decorators wrapped, or that `copy_tests` of PyTorch's tests calls by the default of a
    parameter `value`."""
    while True:
        test = inspect.unwrap(getattr(test, "__func__", test))
        if not inspect.isfunction(test):
            return test
        value = inspect.signature(test).parameters.get("value")
        if value is None or not inspect.isfunction(value.default):
            return test
        test = value.default
