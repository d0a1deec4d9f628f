"""Archives of programs for the C runtime, and the runtime itself through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litz_ir import from_text
from litz_ir.plan import Plan

Array = np.ndarray[Any, Any]
SAFETENSORS = {
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "bool": "BOOL",
    "uint8": "U8",
}
CODES = {
    name: code
    for code, name in enumerate(
        (
            "OK",
            "IO",
            "FORMAT",
            "CHECKSUM",
            "VERSION",
            "ISA",
            "UNSUPPORTED",
            "WEIGHTS",
            "ARGUMENT",
            "MEMORY",
            "RUN",
        )
    )
}


def plan_of(text: str) -> Plan:
    """The plan of a text."""
    plan = from_text(text)
    assert isinstance(plan, Plan)
    return plan


def safetensors(tensors: Mapping[str, Array]) -> bytes:
    """A file of dense tensors, as safetensors writes it."""
    header: dict[str, Any] = {}
    data = b""
    for name, tensor in tensors.items():
        raw = np.ascontiguousarray(tensor).tobytes()
        header[name] = {
            "dtype": SAFETENSORS[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def stored_zip(members: Mapping[str, bytes]) -> bytes:
    """A ZIP archive of stored members whose data begin at multiples of 64 bytes."""
    body, directory = b"", b""
    for name, data in members.items():
        raw = name.encode()
        padding = -(len(body) + 30 + len(raw)) % 64
        extra = struct.pack("<HH", 0xD935, padding - 4) + bytes(padding - 4) if padding >= 4 else b""
        if len(extra) != padding:
            extra = struct.pack("<HH", 0xD935, padding + 60) + bytes(padding + 60)
        crc = zlib.crc32(data)
        numbers = struct.pack("<IIIHH", crc, len(data), len(data), len(raw), len(extra))
        fixed = struct.pack("<HHHHH", 20, 0x800, 0, 0, 0x21)
        directory += struct.pack("<IH", 0x02014B50, 20) + fixed + struct.pack(
            "<IIIHHHHHII", crc, len(data), len(data), len(raw), 0, 0, 0, 0, 0, len(body)
        ) + raw  # fmt: skip
        body += struct.pack("<I", 0x04034B50) + fixed + numbers + raw + extra + data
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + end


def model_bytes(
    host: bytes,
    isa: str,
    inputs: Sequence[str],
    weights: Mapping[str, tuple[int, Array]] | None = None,
    *,
    sidecar: bool = False,
    overwritten: Sequence[str] = (),
    **changes: Any,
) -> bytes:
    """A model of one entry point, ``forward``; ``changes`` replace parts of the manifest.

    ``weights`` has the position and value of each. With ``sidecar`` they are not stored in it. ``overwritten`` names
    inputs that the manifest says operators write to.
    """
    members = {"forward.host.so": host}
    tensors = {name: tensor for name, (_, tensor) in (weights or {}).items()}
    if tensors and not sidecar:
        members["weights.safetensors"] = safetensors(tensors)
    files = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in members.items()
    }
    bound = [{"name": name, "position": position} for name, (position, _) in (weights or {}).items()]
    manifest = {
        "format": "litz model",
        "version": 1,
        "files": files,
        "entry_points": {
            "forward": {
                "inputs": [
                    {"name": name, "kind": "tensor", "overwritten": name in overwritten} for name in inputs
                ],
                "weights": bound,
                "calls": [],
                "programs": [{"device": "cpu", "isa": isa, "host": "forward.host.so"}],
            }
        },
        "weights": {"file": "weights.safetensors" if tensors else None, "tensors": {}},
        **changes,
    }
    return stored_zip({"manifest.json": json.dumps(manifest).encode(), **members})


class Error(ctypes.Structure):
    """``litz_error``."""

    _fields_ = (("code", ctypes.c_int), ("message", ctypes.c_char * 512))


class Weight(ctypes.Structure):
    """``litz_weight``."""

    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Options(ctypes.Structure):
    """``litz_options``."""

    _fields_ = (
        ("threads", ctypes.c_int),
        ("verify_weights", ctypes.c_int),
        ("weights_path", ctypes.c_char_p),
        ("weights", ctypes.POINTER(Weight)),
        ("weight_count", ctypes.c_size_t),
        ("operators", ctypes.c_void_p),
    )


class Layout(ctypes.Structure):
    """``litz_layout``."""

    _fields_ = (
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", ctypes.c_int64 * 16),
        ("strides", ctypes.c_int64 * 16),
        ("bytes", ctypes.c_size_t),
    )


class Failure(Exception):
    """An error of the runtime."""

    def __init__(self, error: Error) -> None:
        self.code = error.code
        super().__init__(error.message.decode())


class Runtime:
    """liblitz_runtime."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        for name in ("litz_entry_named", "litz_entry_at"):
            getattr(self.library, name).restype = ctypes.c_void_p
        for name in ("litz_input_count", "litz_output_count", "litz_symbol_count"):
            getattr(self.library, name).restype = ctypes.c_size_t
            getattr(self.library, name).argtypes = (ctypes.c_void_p,)
        for name in ("litz_input_name", "litz_entry_isa", "litz_entry_name"):
            getattr(self.library, name).restype = ctypes.c_char_p

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function whose last argument is an error, which is raised."""
        error = Error()
        code = getattr(self.library, name)(*arguments, ctypes.byref(error))
        if code:
            assert code == error.code
            raise Failure(error)

    def open(self, path: Path, **options: Any) -> Model:
        """Open a model."""
        weights = options.pop("weights", {})
        rows = [Weight(n.encode(), w.ctypes.data, w.nbytes) for n, w in weights.items()]
        table = (Weight * len(rows))(*rows)
        chosen = Options(weights=table, weight_count=len(rows), **options)
        handle = ctypes.c_void_p()
        self.check("litz_open", str(path).encode(), ctypes.byref(chosen), ctypes.byref(handle))
        return Model(self, handle)


class Model:
    """An open model, with its entry point ``forward``."""

    def __init__(self, runtime: Runtime, handle: ctypes.c_void_p) -> None:
        self.runtime, self.handle = runtime, handle
        self.entry = ctypes.c_void_p(runtime.library.litz_entry_named(handle, b"forward"))
        self.outputs = runtime.library.litz_output_count(self.entry)
        self.symbols = runtime.library.litz_symbol_count(self.entry)

    def symbols_of(self, inputs: Sequence[Array]) -> Any:
        """The symbols' values for inputs of these shapes."""
        shapes = [(ctypes.c_int64 * max(1, x.ndim))(*x.shape) for x in inputs]
        table = (ctypes.c_void_p * max(1, len(inputs)))(*(ctypes.addressof(shape) for shape in shapes))
        found = (ctypes.c_int64 * max(1, self.symbols))()
        self.runtime.check("litz_symbols_of", self.entry, table, found)
        return found

    def layout(self, output: int, symbols: Any) -> Layout:
        """The layout of an output."""
        layout = Layout()
        self.runtime.check(
            "litz_output_layout", self.entry, ctypes.c_size_t(output), symbols, ctypes.byref(layout)
        )
        return layout

    def __call__(self, *inputs: Array, dtypes: Sequence[str] = ()) -> list[Array]:
        """Run on arrays in the program's layouts; outputs are f32 unless ``dtypes`` has others."""
        symbols = self.symbols_of(inputs)
        memory, found = [], []
        for k in range(self.outputs):
            layout = self.layout(k, symbols)
            dtype = np.dtype(dtypes[k] if dtypes else "float32")
            raw = np.full(layout.bytes + 1, 0xA5, np.uint8)
            shape = tuple(layout.shape[: layout.rank])
            strides = tuple(step * dtype.itemsize for step in layout.strides[: layout.rank])
            memory.append(raw)
            found.append(np.ndarray(shape, dtype, raw.data, 0, strides))
        given = (ctypes.c_void_p * max(1, len(inputs)))(*(x.ctypes.data for x in inputs))
        results = (ctypes.c_void_p * max(1, len(found)))(*(x.ctypes.data for x in memory))
        self.runtime.check("litz_run", self.entry, symbols, given, results)
        assert all(raw[-1] == 0xA5 for raw in memory), "a run wrote beyond an output"
        return found

    def close(self) -> None:
        """Close the model."""
        self.runtime.library.litz_close(self.handle)
