"""The kernels that keep copies of memory, in Triton's interpreter.

``TRITON_INTERPRET=1 python triton_frozen_copies.py FOLDER`` prints a line of JSON: after each call, whether copying was
asked for, and whether each copy has the elements of its source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from litz_codegen_triton.emit import KernelSource
from litz_codegen_triton.runtime.frozen_copies import COMPARE, COPY, WORDS, copying_sources, table_row
from litz_codegen_triton.runtime.modules import load_function
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.target import MemoryCopy

BLOCKS = 3
DTYPES: dict[torch.dtype, DType] = {torch.float32: f32, torch.bfloat16: bf16, torch.float16: f16}


def exact(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return small multiples of 1/8, which no dtype rounds: the interpreter truncates bf16."""
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randint(-99, 99, shape, generator=generator) / 8).to(dtype)


def pair(source: torch.Tensor, target: torch.Tensor, *sizes: int) -> MemoryCopy:
    """Return the copy of a source to the first elements of a target."""
    dtypes = (DTYPES[source.dtype], DTYPES[target.dtype])
    strides = (source.stride(), target.stride())
    return MemoryCopy(source.data_ptr(), target.data_ptr(), dtypes, sizes or tuple(source.shape), strides)


def main(folder: Path) -> None:
    """Run both kernels over copies of several dtypes, ranks and layouts."""
    functions = {
        each.name: load_function(each.text, each.name, folder) for each in copying_sources(KernelSource)
    }
    filters = exact(5, 7, 3, 2)
    sources = [filters, exact(40, 30), exact(33), exact(6, 5, 4), exact(2050, dtype=torch.bfloat16)]
    targets = [
        torch.zeros(5, 7, 3, 2, dtype=torch.bfloat16).to(memory_format=torch.channels_last),
        torch.zeros(48, 32, dtype=torch.float16),
        torch.zeros(33),
        torch.zeros(4, 5, 6, dtype=torch.float16).permute(2, 1, 0),
        torch.zeros(2050, dtype=torch.bfloat16),
    ]
    copies = [pair(source, target) for source, target in zip(sources, targets, strict=True)]
    table = torch.tensor([each for copy in copies for each in table_row(copy)])
    words = torch.tensor([each.data_ptr() + 4 * k for each in sources for k in range(0, each.nbytes // 4, 3)])
    values, changed = torch.zeros(len(words), dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    blocks = -(-len(words) // WORDS)

    def call(stamp: int, copy: bool = True) -> list[bool]:
        functions[COMPARE][(blocks,)](words, values, changed, stamp, len(words))
        if copy:
            functions[COPY][(BLOCKS,)](table, changed, stamp, len(copies))
        same = [
            torch.equal(target[tuple(map(slice, source.shape))].to(source.dtype), source)
            for source, target in zip(sources, targets, strict=True)
        ]
        return [int(changed) == stamp, *same]

    seen = {"noted": call(1, copy=False), "unchanged": call(2)}
    filters[0, 0, 0, 0] = 0.5
    seen["changed"] = call(3)
    targets[1].zero_()
    seen["later"] = call(4)
    seen["padding"] = [bool((targets[1][40:] == 0).all())]
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
