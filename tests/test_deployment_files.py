"""Files of models: damaged and foreign ones are refused before anything is executed; instruction sets; signatures."""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import litz
from litz.configuration import config
from litz.deployment import archive, binaries
from litz.deployment.archive import ALIGNMENT, MANIFEST, SIGNATURE, Chunk, open_archive, write_archive
from litz.deployment.saved_weights import weights_content
from litz.deployment.weights import StoredWeights
from litz.targets import targets_for
from litz_codegen_cpp.target import CpuTarget
from litz_ir.errors import ArtifactError

X86 = platform.machine() in ("x86_64", "AMD64")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh()).eval()
    return litz.aot_compile(model, (torch.randn(2, 8),), path=tmp_path_factory.mktemp("model") / "model.litz")


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """Return the path of a copy of a model."""
    own = tmp_path / "model.litz"
    own.write_bytes(written.read_bytes())
    return own


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives what loading would execute."""
    seen: list[str] = []
    monkeypatch.setattr(binaries, "_linked", lambda content: seen.append("linked"))
    monkeypatch.setattr("litz.deployment.load.loader_of", lambda *args: seen.append("loaded"))
    return seen


def members(path: Path) -> dict[str, bytes]:
    """Return the members of a model."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewrite(path: Path, found: dict[str, bytes]) -> None:
    """Write a model with these members."""
    write_archive(path, {name: (Chunk(data),) for name, data in found.items()})


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a model again with another manifest."""
    found = members(path)
    document = json.loads(found[MANIFEST])
    change(document)
    rewrite(path, {**found, MANIFEST: json.dumps(document).encode()})


def become_a_folder(path: Path) -> None:
    """Replace a model by a folder."""
    path.unlink()
    path.mkdir()


def program(document: dict[str, Any]) -> dict[str, Any]:
    """Return the first program of a manifest."""
    found: dict[str, Any] = document["entry_points"]["forward"]["programs"][0]
    return found


def add(path: Path, names: tuple[str, ...]) -> None:
    """Write a model again with further members, which the manifest does not name."""
    found = [*members(path).items(), *((name, b"content") for name in names)]
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of a name that is there
        for name, data in found:
            archive._write_member(target, file, name, (Chunk(data),))


def test_members_are_aligned_and_mapped(path: Path) -> None:
    found = open_archive(path)
    assert next(iter(found.spans)) == MANIFEST
    assert all(start % 64 == 0 for start, _ in found.spans.values())
    assert {name: bytes(found.content(name)) for name in found.spans} == members(path)
    assert all(type(each) is torch.Tensor for each in litz.load(path).state_dict().values())


def test_every_flipped_byte_is_found(path: Path, executed: list[str]) -> None:
    spans = open_archive(path).spans
    assert {Path(name).suffix for name in spans} == {".json", ".so", ".safetensors"}
    intact = path.read_bytes()
    for start, size in spans.values():
        for at in (start, start + size // 2, start + size - 1):
            path.write_bytes(intact[:at] + bytes([intact[at] ^ 0xFF]) + intact[at + 1 :])
            with pytest.raises(ArtifactError):
                litz.load(path, verify="load")
    assert not executed


def test_weights_are_checked_before_the_first_call(path: Path) -> None:
    start, size = open_archive(path).spans["weights.safetensors"]
    data = bytearray(path.read_bytes())
    data[start + size - 1] ^= 1
    path.write_bytes(data)
    model = litz.load(path)
    for _ in range(2):
        with pytest.raises(ArtifactError, match=r"checksum of weights.safetensors differs"):
            model(torch.randn(2, 8))
    assert litz.load(path, verify="code")(torch.randn(2, 8)).shape == (2, 4)


@pytest.mark.parametrize("whole", [True, False])
def test_a_forked_process_checks_weights_itself(
    whole: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that compares the checksum ends with the fork, before it did so."""
    compare, forked = StoredWeights.verify, threading.Event()

    def verify(self: StoredWeights) -> None:
        if threading.current_thread() is not threading.main_thread():
            forked.wait()
        compare(self)
        assert whole, "a damaged file"

    monkeypatch.setattr(StoredWeights, "verify", verify)
    model = litz.load(path)
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        status = 1
        try:
            model(torch.randn(2, 8))
            status = 2
        except AssertionError:
            status = 3
        finally:
            os._exit(status)
    forked.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (2 if whole else 3)


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(kept: float, path: Path, executed: list[str]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ArtifactError, match=r"damaged|empty"):
        litz.load(path)
    assert not executed


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "other format": (lambda p: edit(p, lambda m: m.update(format="other")), "has the format 'other'"),
    "newer": (lambda p: edit(p, lambda m: m.update(version=2)), "this is 'litz model' 1"),
    "no manifest": (lambda p: rewrite(p, {"a.json": b"{}"}), "manifest.json is not its first member"),
    "no json": (lambda p: rewrite(p, {MANIFEST: b"[1"}), "no readable manifest"),
    "no fields": (lambda p: edit(p, lambda m: m.pop("entry_points")), "manifest of .* is damaged"),
    "missing": (lambda p: rewrite(p, {k: v for k, v in members(p).items() if ".so" not in k}), r"has no .*\.so"),
    "unknown": (lambda p: add(p, ("more.so",)), "has more.so, of which the manifest knows nothing"),
    "twice": (lambda p: add(p, ("weights.safetensors",)), "two members 'weights.safetensors'"),
    "above": (lambda p: add(p, ("../more.so",)), r"a member is named '\.\./more.so'"),
    "absolute": (lambda p: add(p, ("/tmp/more.so",)), "a member is named '/tmp/more.so'"),
    "folder": (lambda p: add(p, ("folder/more.so",)), "a member is named 'folder/more.so'"),
    "other set": (
        lambda p: edit(p, lambda m: program(m).update(capabilities={"cpu": "avx9"})),
        "it was compiled for avx9, and this machine has",
    ),
    "other interface": (
        lambda p: edit(p, lambda m: program(m).update(interfaces={"cpu": 99})),
        "have the interface 99, and the installed target has 1",
    ),
    "other weights": (
        lambda p: edit(p, lambda m: m["weights"]["tensors"]["0.bias"].update(shape=[5])), "another shape"
    ),
    "weights elsewhere": (
        lambda p: edit(p, lambda m: m["weights"].update(file="../../etc/passwd")), "the weights are in"
    ),
    "writable": (lambda p: p.chmod(0o666), "others may write to it"),
    "other user": (lambda p: os.chown(p, 12345, -1), "it belongs to another user"),
    "a folder": (become_a_folder, "cannot read|is not a file"),
    "absent": (lambda p: p.unlink(), "cannot read"),
    "no archive": (lambda p: p.write_bytes(b"text" * 100), "is no litz model"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_other_files_are_refused(name: str, path: Path, executed: list[str]) -> None:
    if name == "other user" and os.geteuid():
        pytest.skip("only root gives files away")
    fault, message = FAULTS[name]
    fault(path)
    with pytest.raises(ArtifactError, match=message):
        litz.load(path)
    assert not executed


def test_a_compressed_member_is_refused(path: Path) -> None:
    found = members(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in found.items():
            target.writestr(name, data)
    with pytest.raises(ArtifactError, match="compressed"):
        litz.load(path)


def test_another_device_is_refused(path: Path) -> None:
    with pytest.raises(ArtifactError, match="was compiled for cpu, not for cuda"):
        litz.load(path, device="cuda")


def test_binaries_are_loaded_from_memory_or_from_a_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    expected = litz.load(path)(torch.ones(2, 8))
    binaries._memory_file.cache_clear()

    def refused(name: str, flags: int) -> int:
        raise PermissionError("no files in memory")

    monkeypatch.setattr(os, "memfd_create", refused)
    (tmp_path / "absent").mkdir()
    model = litz.load(path)
    assert list((tmp_path / "absent").rglob("*.so"))
    assert torch.equal(model(torch.ones(2, 8)), expected)
    del model
    assert not list((tmp_path / "absent").iterdir())
    binaries._memory_file.cache_clear()


@pytest.mark.skipif(not X86, reason="the sets are those of x86")
def test_the_best_instruction_set_of_the_machine_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)

    x, path = torch.randn(4, 33), tmp_path / "model.litz"
    litz.aot_compile(function, (x,), path=path, isas=("scalar", "avx512", "avx2"))
    assert litz.load(path).isa == CpuTarget().runs()[0]
    names = [each["isa"] for each in litz.load(path).manifest["entry_points"]["forward"]["programs"]]
    assert names == ["avx512", "avx2", "scalar"]
    for isa in CpuTarget().runs():
        known = CpuTarget().runs()
        monkeypatch.setattr(CpuTarget, "runs", lambda self, known=known, isa=isa: known[known.index(isa) :])
        model = litz.load(path)
        assert model.isa == isa
        torch.testing.assert_close(model(x), function(x))
        monkeypatch.undo()
    monkeypatch.setattr(CpuTarget, "runs", lambda self: ("neon", "later"))
    with pytest.raises(ArtifactError, match="compiled for avx512, and this machine has neon, later"):
        litz.load(path)


def test_chips_are_those_of_gpus(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="the program runs on the CPU"):
        litz.aot_compile(nn.Tanh(), (torch.ones(2),), path=tmp_path / "model.litz", chips=("sm_90",))
    pytest.importorskip("triton")
    targets = targets_for(("cuda",), config.current().replaced({"chip": "sm_80"}))
    assert targets.by_kind["cuda"].capabilities().name == "sm_80"


def test_signed_models(
    path: Path, tmp_path: Path, executed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    own, other = keys.Ed25519PrivateKey.generate(), keys.Ed25519PrivateKey.generate()
    trusted = own.public_key()
    with pytest.raises(ArtifactError, match="is not signed"):
        litz.load(path, trusted_keys=[trusted])
    x = torch.ones(2, 8)
    signed = litz.aot_compile(
        nn.Tanh(), (x,), path=tmp_path / "signed.litz", sign_with=own.private_bytes_raw()
    )
    with pytest.raises(ArtifactError, match="none of the trusted keys signed"):
        litz.load(signed, trusted_keys=[other.public_key()])
    with pytest.raises(ArtifactError, match="none of the trusted keys signed"):
        litz.load(signed, trusted_keys=[])
    with pytest.raises(ArtifactError, match="a key cannot be read"):
        litz.load(signed, trusted_keys=[b"short"])
    changed = tmp_path / "changed.litz"
    changed.write_bytes(signed.read_bytes())
    edit(changed, lambda m: m["writers"].update(litz="9"))
    with pytest.raises(ArtifactError, match="none of the trusted keys signed"):
        litz.load(changed, trusted_keys=[trusted])
    assert not executed and len(members(signed)[SIGNATURE]) == 64
    monkeypatch.undo()
    for keys_given in ([trusted], [other.public_key(), trusted.public_bytes_raw()]):
        torch.testing.assert_close(litz.load(signed, trusted_keys=keys_given)(x), torch.tanh(x))


def test_weights_are_a_file_of_safetensors_from_the_memory_of_the_tensors(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    dtypes = (torch.bool, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.int16, torch.complex64)
    tensors = {
        f"w{k}": torch.randint(0, 2, (3, k), generator=generator).to(dtype) for k, dtype in enumerate(dtypes)
    }
    tensors["transposed"] = torch.randn(4, 6, generator=generator).t()
    tensors["scalar"] = torch.tensor(3.0)
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"".join(bytes(chunk.data) for chunk in weights_content(tensors)))
    stored = safetensors.torch.load_file(file)
    assert stored.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert stored[name].dtype == tensor.dtype and torch.equal(stored[name], tensor)
    (first, *elements) = weights_content({"w": tensors["w1"]})
    assert len(first) % ALIGNMENT == 0
    assert torch.frombuffer(elements[0].data, dtype=torch.float64).data_ptr() == tensors["w1"].data_ptr()
    with pytest.raises(ArtifactError, match=r"cannot store the weight wide, which is of torch\.complex128"):
        weights_content({"wide": torch.zeros(2, dtype=torch.complex128)})
