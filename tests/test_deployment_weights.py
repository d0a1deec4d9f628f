"""Weights of deployed models: mapped from the file, replaced during calls, stored separate the file or not at all."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from deployed_models import CASES, Counted, Tied
from torch import nn

import litz
from litz_ir.errors import ArtifactError


class Scaled(nn.Module):
    """A model whose result does not depend on its weights, as long as they belong together."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.full((64,), factor))
        self.down = nn.Parameter(torch.full((64,), 1 / factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.up).contiguous() * self.down


def compiled(model: nn.Module, *args: Any, path: Path, **options: Any) -> Any:
    """Compile a model, and load it."""
    return litz.load(litz.aot_compile(model, args, path=path / "model.litz", **options))


def test_weights_are_replaced_by_name(tmp_path: Path) -> None:
    first, second = (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(2))
    x = torch.randn(3, 8)
    loaded = compiled(first, x, path=tmp_path)
    torch.testing.assert_close(loaded(x), first(x).detach())
    torch.testing.assert_close(loaded.state_dict(), {**first.state_dict()})
    given = {name: value.clone() for name, value in second.state_dict().items()}
    loaded.update_weights(given)
    for value in given.values():
        value.zero_()  # the model has copies
    torch.testing.assert_close(loaded(x), second(x).detach())
    loaded.update_weights({"0.bias": first.state_dict()["0.bias"]}, partial=True)
    mixed = {**second.state_dict(), "0.bias": first.state_dict()["0.bias"]}
    torch.testing.assert_close(loaded(x), torch.func.functional_call(first, mixed, (x,)).detach())
    for change, message in {
        "unknown": "has no weight unknown", "0.weight": r"0.weight of .* is torch.float32 of \(16, 8\), got"
    }.items():  # fmt: skip
        before = loaded.state_dict()
        with pytest.raises(ArtifactError, match=message):
            loaded.update_weights({**given, change: torch.zeros(3, dtype=torch.float64)})
        torch.testing.assert_close(loaded.state_dict(), before)
    with pytest.raises(ArtifactError, match=r"no value for the weight 0.weight.*"):
        loaded.update_weights({"0.bias": given["0.bias"]})


def test_what_depends_on_weights_alone_is_computed_again(tmp_path: Path) -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.norm(self.conv(x)).relu()
            return result

    first, second = Normalised().eval(), Normalised().eval()
    second.norm.running_mean = torch.randn(8)
    x = torch.randn(2, 4, 9, 9)
    loaded = compiled(first, x, path=tmp_path)
    for model in (first, second, first):
        loaded.update_weights(model.state_dict())
        for _ in range(2):
            torch.testing.assert_close(loaded(x), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_each_call_uses_one_set_of_weights(tmp_path: Path) -> None:
    x = torch.randn(32, 64)
    loaded = compiled(Scaled(), x, path=tmp_path)
    sets = [{**Scaled(factor).state_dict()} for factor in (1.0, 2.0, 0.25)]
    wrong: list[float] = []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            wrong.extend([float((loaded(x) - x).abs().max())])

    threads = [threading.Thread(target=call) for _ in range(3)]
    for each in threads:
        each.start()
    for number in range(150):
        loaded.update_weights(sets[number % 3])
    stop.set()
    for each in threads:
        each.join()
    assert len(wrong) > 10 and max(wrong) == 0.0


def test_tied_weights_are_one(tmp_path: Path) -> None:
    model = Tied()
    args, kwargs = CASES["tied"].arguments(4)
    path = litz.aot_compile(model, args, kwargs, path=tmp_path / "model.litz", weights="file")
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert sum(name.endswith("weight") for name in stored) == 1
    loaded = litz.load(path)
    assert loaded.state_dict().keys() == model.state_dict().keys()
    with pytest.raises(ArtifactError, match="are tied, and differ"):
        loaded.update_weights({**model.state_dict(), "second.weight": torch.zeros(8, 8)})
    new = torch.randn(8, 8)
    loaded.update_weights({"second.weight": new}, partial=True)
    assert torch.equal(loaded.state_dict()["first.weight"], new)


def test_tied_weights_are_given_by_any_of_their_names(tmp_path: Path) -> None:
    model = Tied()
    args, kwargs = CASES["tied"].arguments(4)
    path = litz.aot_compile(model, args, kwargs, path=tmp_path / "model.litz", weights="none")
    values = {name: value.clone() for name, value in model.state_dict().items()}
    for name in ("first.weight", "second.weight"):
        given = {each: value for each, value in values.items() if each != name}
        safetensors.torch.save_file(given, tmp_path / "given.safetensors")
        for weights in (given, tmp_path / "given.safetensors"):
            loaded = litz.load(path, weights=weights)
            torch.testing.assert_close(loaded(*args, **kwargs), model(*args, **kwargs).detach())
    with pytest.raises(ArtifactError, match="are tied, and differ"):
        litz.load(path, weights={**values, "second.weight": torch.zeros(8, 8)})
    safetensors.torch.save_file({"other": torch.zeros(1)}, tmp_path / "given.safetensors")
    with pytest.raises(
        ArtifactError, match=r"given.safetensors has no weight .*\n.*all weights of state_dict"
    ):
        litz.load(path, weights=tmp_path / "given.safetensors")


def test_weights_in_a_file_of_their_own_or_given(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    x = torch.randn(3, 8)
    for form in ("file", "none"):
        litz.aot_compile(model, (x,), path=tmp_path / form / "model.litz", weights=form)
    separate = tmp_path / "file" / "model.safetensors"
    torch.testing.assert_close(safetensors.torch.load_file(separate), {**model.state_dict()})
    torch.testing.assert_close(litz.load(tmp_path / "file" / "model.litz")(x), model(x).detach())
    without = tmp_path / "none" / "model.litz"
    assert not (tmp_path / "none" / "model.safetensors").exists()
    for given in (model.state_dict(), separate):
        torch.testing.assert_close(litz.load(without, weights=given)(x), model(x).detach())
    with pytest.raises(ArtifactError, match="has no value for the weight"):
        litz.load(without)
    with pytest.raises(ArtifactError, match="has no weight other"):
        litz.load(without, weights={"other": x})
    data = bytearray(separate.read_bytes())
    data[-1] ^= 1
    separate.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"model.safetensors does not belong to"):
        litz.load(tmp_path / "file" / "model.litz")(x)
    with pytest.raises(ArtifactError, match="unknown form of weights"):
        litz.aot_compile(model, (x,), path=without, weights="cloud")  # type: ignore[arg-type]


def test_names_with_dots_have_weights_of_their_own(tmp_path: Path) -> None:
    models, x = [nn.Linear(4, 4) for _ in range(3)], torch.randn(2, 4)
    names = ("model-3.1", "model-3.2", "model.safetensors")
    for name, model in zip(names, models, strict=True):
        litz.aot_compile(model, (x,), path=tmp_path / name, weights="file")
    for name, model in zip(names, models, strict=True):
        torch.testing.assert_close(litz.load(tmp_path / name)(x), model(x).detach())


@pytest.mark.parametrize("form", ["archive", "none"])
def test_weights_are_without_gradients_and_have_versions(form: Any, tmp_path: Path) -> None:
    model = Scaled(3.0)
    path = litz.aot_compile(model, (torch.ones(64),), path=tmp_path / "model.litz", weights=form)
    given = dict(model.named_parameters()) if form == "none" else None
    with torch.inference_mode():
        loaded = litz.load(path, weights=given)
    before = list(loaded.state_dict().values())
    with torch.inference_mode():
        loaded.update_weights(dict(model.named_parameters()))
    for each in (*before, *loaded.state_dict().values()):
        assert not each.requires_grad and not each.is_inference()


def test_what_calls_overwrite_is_the_model_s_own(tmp_path: Path) -> None:
    args, kwargs = CASES["counted"].arguments(4)
    shapes = CASES["counted"].dynamic_shapes
    path = litz.aot_compile(Counted(), args, kwargs, dynamic_shapes=shapes, path=tmp_path / "model.litz")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    one, other = litz.load(path), litz.load(path)
    for _ in range(3):
        one(*args, **kwargs)
    taken = one.state_dict()
    assert taken["calls"] == 3 and other.state_dict()["calls"] == 0
    one(*args, **kwargs)
    assert taken["calls"] == 3 and one.state_dict()["calls"] == 4
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_pages_of_weights_are_those_of_the_file(tmp_path: Path) -> None:
    x = torch.randn(2, 512)
    loaded = compiled(nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))), x, path=tmp_path)
    loaded(x)
    lines = Path("/proc/self/smaps").read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.endswith(str(tmp_path / "model.litz")))
    sizes = {
        line.split(":")[0]: int(line.split()[1]) for line in lines[first + 1 : first + 20] if "kB" in line
    }
    assert sizes["Rss"] >= 4 * 1024 and sizes["Anonymous"] == 0, "no page is a copy"
    weights = loaded.state_dict().values()
    assert all(weight.data_ptr() % 4 == 0 and weight.is_contiguous() for weight in weights)


def test_weights_keep_their_strides(tmp_path: Path) -> None:
    model = nn.Conv2d(4, 8, 3)
    model.weight = nn.Parameter(model.weight.detach().contiguous(memory_format=torch.channels_last))
    model.register_buffer("wide", torch.randn(16, 1).expand(16, 8), persistent=True)
    x = torch.randn(2, 4, 9, 9)
    loaded = compiled(model, x, path=tmp_path)
    torch.testing.assert_close(loaded(x), model(x).detach(), check_stride=True)
    assert loaded.state_dict()["weight"].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(loaded.state_dict()["wide"], model.wide)
