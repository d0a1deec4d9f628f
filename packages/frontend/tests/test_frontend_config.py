"""Options: types, scopes, and refusal of unknown names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pytest

import litz
import litz.cache
from litz.environment.variables import quota_bytes
from litz.notices import log_once
from litz.options import config_from, variable_notices
from litz.passes import Passes
from litz.settings import Config, ConfigHandle
from litz.stage_options import scheduler_options
from litz.targets import targets_for
from litz_ir.errors import ConfigError
from litz_scheduler import parse_options


def test_environment_sets_the_defaults() -> None:
    handle = ConfigHandle({"LITZ_FALLBACK": "error", "LITZ_CACHE": "0", "CXX": "clang++"})
    assert (handle.fallback, handle.cache, handle.compiler) == ("error", False, "clang++")


def test_inductors_cache_folder_is_followed() -> None:
    named = {"TORCHINDUCTOR_CACHE_DIR": "/scratch/inductor"}
    assert ConfigHandle(named).cache_dir == "/scratch/inductor/litz"
    assert ConfigHandle({**named, "LITZ_CACHE_DIR": "/scratch/own"}).cache_dir == "/scratch/own"
    # Inductor sets the variable to a folder of its own, which nobody chose.
    chosen = str(Path(tempfile.gettempdir()) / "torchinductor_user")
    assert ConfigHandle({"TORCHINDUCTOR_CACHE_DIR": chosen}).cache_dir is None


def test_the_environment_is_checked() -> None:
    with pytest.raises(ConfigError, match="LITZ_CACHE takes 0 or 1"):
        ConfigHandle({"LITZ_CACHE": "perhaps"})
    with pytest.raises(ConfigError, match="'warn' or 'silent' or 'error'"):
        ConfigHandle({"LITZ_FALLBACK": "shout"})


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("LITZ_FALBACK", "did you mean LITZ_FALLBACK?"),
        ("LITZ_CACHEDIR", "did you mean LITZ_CACHE_DIR?"),
        ("LITZ_Fuse", "did you mean LITZ_FUSE?"),
        ("LITZ_QQQ", "options are fallback, rng,"),
    ],
)
def test_variables_that_name_no_option_are_warned_about(
    variable: str, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_once.cache_clear()
    given = {variable: "error", "LITZ_FUSE": "1", "PATH": "/bin", "NOLITZ_FUSE": "1"}
    for _ in range(2):
        assert ConfigHandle(given).current() == Config()
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("litz", "WARNING")
    assert (
        record.message.startswith(f"litz: {variable} in the environment names no option")
        and hint in record.message
    )


def test_variables_of_the_cache() -> None:
    for variable in ("LITZ_CACHE", "LITZ_DISABLE_CACHE", "LITZ_FORCE_DISABLE_CACHES"):
        value = "0" if variable == "LITZ_CACHE" else "1"
        assert not ConfigHandle({variable: value}).cache
    assert ConfigHandle({"LITZ_DISABLE_CACHE": "0"}).cache
    assert not ConfigHandle({"LITZ_DISABLE_CACHE": "1", "LITZ_CACHE": "1"}).cache
    with pytest.raises(ConfigError, match="LITZ_DISABLE_CACHE takes 0 or 1"):
        ConfigHandle({"LITZ_DISABLE_CACHE": "perhaps"})
    layers = ConfigHandle({"LITZ_CACHE_LAYERS": os.pathsep.join(("/image", "", "/nfs"))}).current()
    assert layers.layer_roots() == (Path("/image"), Path("/nfs"))
    redis = {"TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "1", "TORCHINDUCTOR_REDIS_HOST": "cache"}
    assert ConfigHandle(redis).cache_remote == "redis://cache:6379"
    assert ConfigHandle({**redis, "LITZ_CACHE_REMOTE": "file:///c"}).cache_remote == "file:///c"
    assert not ConfigHandle({**redis, "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0"}).cache_remote
    assert not variable_notices(redis)


def test_secrets_are_neither_shown_nor_saved() -> None:
    handle = ConfigHandle({"LITZ_CACHE_REMOTE": "redis://:pa55@host", "LITZ_CACHE_REMOTE_KEY": "secret"})
    assert "pa55" not in repr(handle) + handle.save() and "secret" not in repr(handle) + handle.save()
    handle.load(handle.save())
    assert (handle.cache_remote, handle.cache_remote_key) == ("redis://:pa55@host", "secret"), "as they were"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("12", 12), ("5GB", 5 * 10**9), ("500 MiB", 500 << 20), ("1.5kb", 1500)],
)
def test_quotas(text: str, expected: int | None) -> None:
    assert quota_bytes(Config().replaced({"cache_quota": text}).cache_quota) == expected


@pytest.mark.parametrize("text", ["GB", "-1", "5 apples", "1e9"])
def test_quotas_that_are_no_bytes(text: str) -> None:
    with pytest.raises(ConfigError, match="takes a number of bytes"):
        Config().replaced({"cache_quota": text})


def test_numbers_are_read_and_checked() -> None:
    assert ConfigHandle({"LITZ_AUTOTUNE_SECONDS": "2.5"}).autotune_seconds == 2.5
    with pytest.raises(ConfigError, match="LITZ_AUTOTUNE_SECONDS takes a number, got 'long'"):
        ConfigHandle({"LITZ_AUTOTUNE_SECONDS": "long"})
    for wrong in (-1.0, True, "2"):
        with pytest.raises(ConfigError, match="a number that is not negative"):
            Config().replaced({"autotune_seconds": wrong})


def test_patch_is_scoped() -> None:
    handle = ConfigHandle({})
    with handle.patch(fallback="error"):
        with handle.patch(rng="fast") as inner:
            assert (inner.fallback, inner.rng) == ("error", "fast")
        assert handle.rng == "eager"
    assert handle.fallback == "warn"


def test_patch_does_not_reach_other_threads() -> None:
    handle = ConfigHandle({})
    seen: list[str] = []
    with handle.patch(fallback="error"):
        thread = threading.Thread(target=lambda: seen.append(handle.fallback))
        thread.start()
        thread.join()
    assert seen == ["warn"]


def test_assignment_holds_for_the_process() -> None:
    handle = ConfigHandle({})
    handle.fallback = "silent"
    assert handle.current().fallback == "silent"


@pytest.mark.parametrize(
    ("name", "near"), [("falback", "fallback"), ("rgn", "rng"), ("cachedir", "cache_dir")]
)
def test_errors_for_unknown_names_suggest_the_nearest(name: str, near: str) -> None:
    handle = ConfigHandle({})
    with pytest.raises(ConfigError, match=near), handle.patch(**{name: 1}):
        pass
    with pytest.raises(ConfigError, match=near):
        setattr(handle, name, 1)
    with pytest.raises(ConfigError, match=near):
        getattr(handle, name)


@pytest.mark.parametrize(
    "name", ["max_fusion_size", "triton.multi_kernel", "cpp.min_chunk_size", "pattern_matcher"]
)
def test_names_that_resemble_no_option_get_no_misleading_hint(name: str) -> None:
    with pytest.raises(ConfigError, match=r"litz\.list_options") as caught:
        Config().replaced({name: 1})
    assert "did you mean" not in str(caught.value)


def test_options_are_saved_loaded_and_hashed() -> None:
    one, other = ConfigHandle({"LITZ_NUMERICS": "fast"}), ConfigHandle({"LITZ_FUSE": "0"})
    assert json.loads(one.save()) == {"numerics": "fast"} and ConfigHandle({}).save() == "{}"
    assert one.digest() != other.digest()
    with one.patch(cache_dir="/there", autotune_seconds=2.5):
        other.load(one.save())
        assert other.current() == one.current() and one.digest() == other.digest()
    assert other.fuse, "what was not saved is at its default"
    for wrong in ("no json", "[1]", '{"numerics": 3}', '{"rgn": "fast"}', '{"passes": 1}'):
        with pytest.raises(ConfigError):
            other.load(wrong)
    assert other.numerics == "fast", "as it was"
    with (
        pytest.raises(ConfigError, match="cannot be saved"),
        one.patch(passes=Passes(pre_grad=(lambda graph: None,))),
    ):
        one.save()


def test_errors_for_wrong_values_name_the_type() -> None:
    with pytest.raises(ConfigError, match="takes bool, got 3"):
        Config().replaced({"cache": 3})
    with pytest.raises(ConfigError, match="str or None"):
        Config().replaced({"cache_dir": 3})
    with pytest.raises(ConfigError, match=r"takes Passes.*\n.*next: name the stage"):
        Config().replaced({"passes": [print]})


def test_forced_choices_are_checked_where_they_are_set() -> None:
    handle = ConfigHandle(
        {"LITZ_FORCE": "siblings=0 lanes=outer prepack_convolutions=0 generated_matmuls=mm,mm_1"}
    )
    assert parse_options(handle.force) == {
        "siblings": 0,
        "lanes": "outer",
        "prepack_convolutions": False,
        "generated_matmuls": frozenset({"mm", "mm_1"}),
    }
    for wrong, said in {
        "sibling=0": "did you mean siblings",
        "siblings": "takes a number, got ''",
        "siblings=-1": "takes a number",
        "lanes=all": "'lanes' takes best or inner or outer or none",
        "fuse=2": "takes 0 or 1",
    }.items():
        with pytest.raises(ConfigError, match=said), handle.patch(force=wrong):
            pass


def test_forced_choices_reach_the_scheduler() -> None:
    targets = targets_for(("cpu",), Config())
    chosen = scheduler_options(Config(), targets)
    assert scheduler_options(Config(force="unroll=4 fuse=0"), targets) == replace(
        chosen, unroll=4, fuse=False
    )
    assert scheduler_options(Config(force=""), targets) == chosen


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("triton.cudagraphs", "is Inductor's: it sets litz's cuda_graphs"),
        ("max_autotune", "is Inductor's: it sets litz's autotune"),
        ("epilogue_fusion", "is Inductor's and is ignored: epilogues are always fused unless fuse=False"),
    ],
)
def test_options_of_inductor_are_warned_about_once(
    name: str, instead: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_once.cache_clear()
    for value in (True, True, False):
        config_from(Config(), None, {name: value, "numerics": "fast"})
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("WARNING", f"litz: the option {name!r} {instead}")


def test_litz_options_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    log_once.cache_clear()
    config_from(Config(), "max-autotune", {"fuse": False})
    config_from(Config(), None, None)
    assert caplog.records == []


def test_variables_of_inductor() -> None:
    given = {
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "TORCHINDUCTOR_SHAPE_PADDING": "1", "TORCHINDUCTOR_CPP_MARCH": "native",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    }  # fmt: skip
    hold_here = {
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1", "TORCHINDUCTOR_CACHE_DIR": "/t",
        "TORCH_COMPILE_DISABLE": "1", "TORCHINDUCTOR_FREEZING": "0", "LITZ_FUSE": "1",
    }  # fmt: skip
    lines = variable_notices({**given, **hold_here})
    assert {line.split()[1] for line in lines} == set(given)
    assert "TORCHINDUCTOR_FX_GRAPH_CACHE" in lines[1] and lines[1].endswith(
        "LITZ_CACHE turns litz's cache off"
    )
    assert not variable_notices({"TORCHINDUCTOR_FX_GRAPH_CACHE": "1"})
    assert lines[2].endswith("is Inductor's and is ignored: LITZ_AUTOTUNE sets whether litz tunes")


def test_a_process_prints_each_line_once() -> None:
    program = (
        "import sys, torch, litz\nsys.stderr.write('compiling\\n')\n"
        "for size in (2, 3):\n"
        "    torch._dynamo.reset()\n"
        "    compiled = torch.compile(lambda x: x.sin(), backend='litz', options={'cpp_wrapper': True})\n"
        "    compiled(torch.ones(size))"
    )
    environment = {**os.environ, "TORCHINDUCTOR_FREEZING": "1", "LITZ_NUMERIC": "fast"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0
    misspelt, said, variable, option = done.stderr.splitlines()
    assert misspelt.startswith("litz: LITZ_NUMERIC ") and misspelt.endswith("did you mean LITZ_NUMERICS?")
    assert said == "compiling"
    assert variable.startswith("litz: TORCHINDUCTOR_FREEZING in the environment is Inductor's and is ignored")
    assert option.startswith("litz: the option 'cpp_wrapper' is Inductor's and is ignored")


def test_modes_and_foreign_options() -> None:
    base = Config()
    assert config_from(base, "default", None) == base
    assert config_from(base, "reduce-overhead", None) == base.replaced({"cuda_graphs": True})
    assert not config_from(base, "max-autotune", {"triton.cudagraphs": False}).cuda_graphs
    assert config_from(base, None, {"max_autotune_gemm": True, "numerics": "fast"}).numerics == "fast"
    tuned = base.replaced({"autotune": True})
    assert config_from(base, "max-autotune-no-cudagraphs", None) == tuned
    assert config_from(base, "max-autotune", None) == tuned.replaced({"cuda_graphs": True})
    assert config_from(base, "max-autotune", {"autotune": False, "triton.cudagraphs": False}) == base
    assert config_from(base, None, {"coordinate_descent_tuning": True, "autotune_seconds": 3}).autotune
    assert not config_from(base, None, {"max_autotune": False}).autotune
    with pytest.raises(ConfigError, match="did you mean 'max-autotune'"):
        config_from(base, "max-autotun", None)
    with pytest.raises(ConfigError, match="unknown option 'nope'"):
        config_from(base, None, {"nope": 1})


def test_the_readme_has_every_option_with_its_default() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    options = page.partition("## Options")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in options.splitlines() if line.startswith("| `")]
    written = {name: cells[2].split(", ") for cells in rows for name in re.findall(r"`(\w+)`", cells[0])}
    defaults = {option.name: option.default for option in fields(Config)}
    assert written.keys() == defaults.keys()
    for name, default in defaults.items():
        if isinstance(default, bool):
            assert ("on" if default else "off") in written[name], name
        elif isinstance(default, float):
            assert f"{default:g}" in written[name], name
        elif default:
            assert f"`{default}`" in written[name], name


def test_every_option_is_listed_and_accepted() -> None:
    names = litz.list_options()
    assert names == sorted(set(names))
    assert {field.name for field in fields(Config)} < set(names)
    assert {"max_autotune", "triton.cudagraphs", "epilogue_fusion", "numerics"} < set(names)
    default = Config()
    for name in names:
        own = getattr(default, name, None if name.endswith("_pass") else False)
        assert config_from(default, None, {name: own}) is not None


def test_modes_are_listed_with_the_options_that_they_set() -> None:
    modes = litz.list_mode_options()
    assert modes["default"] == modes["lite"] == {}
    assert (
        modes["max-autotune"]
        == litz.list_mode_options("max-autotune")
        == {"cuda_graphs": True, "autotune": True}
    )
    for mode, changes in modes.items():
        assert config_from(Config(), mode, None) == replace(Config(), **changes)
    with pytest.raises(ConfigError, match="unknown mode 'max_autotune'"):
        litz.list_mode_options("max_autotune")


@pytest.mark.parametrize("name", ["cache_remote", "cache_remote_key"])
def test_errors_do_not_show_passwords(name: str) -> None:
    with pytest.raises(ConfigError, match="takes str, got an object of the type bytes") as caught:
        Config().replaced({name: b"password"})
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("module", [litz, litz.cache], ids=lambda module: module.__name__)
def test_names_that_are_not_imported_yet_are_listed(module: ModuleType) -> None:
    listed = dir(module)
    assert {"__doc__", *module._LAZY} <= set(listed) and listed == sorted(listed)
    assert all(hasattr(module, name) for name in listed)
