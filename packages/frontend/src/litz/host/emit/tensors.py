"""Tensors of a host program: their allocation, views of them, and their addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import MappingProxyType

from litz.devices import GPU
from litz.host.emit.code import Code, code
from litz.host.emit.names import Names
from litz.host.program import MemoryLocation
from litz.host.torch_types import COMPLEX_DTYPES, TORCH_DTYPES
from litz_ir.device import Device
from litz_ir.errors import CodegenError
from litz_ir.loops import ComplexRef, Ref, TensorType, Value
from litz_ir.plan import Launch, Placement, Plan, Storage, memory_root, new_results, written_by
from litz_ir.symbols import Size, add, floordiv, mul

_ALLOCATORS = MappingProxyType({"cpu": "empty", GPU: "empty_cuda"})
"""Allocators of :mod:`litz.host.runtime.torch_memory` in a host program, by device kind; other kinds have one that is
made by ``empty_on``."""


class TensorVariables:
    """The variables of values. A value that no step makes is a view, which ``lines`` define at its first use.

    ``wholes`` are the variables of complex tensors, by the value that is their memory as pairs. ``training`` is true
    for half of a training graph.
    """

    def __init__(self, plan: Plan, names: Names, lines: list[Code], training: bool = False) -> None:
        self.placements: dict[str, Placement] = dict(plan.buffers)
        self.storages: dict[str, Storage] = {storage.name: storage for storage in plan.storages}
        self.wholes: dict[str, Code] = {}
        self._names = names
        self._lines = lines
        self._made = {value.name for value in plan.constants}
        self._called: set[str] = set()
        self._returned = {output.name for output in plan.outputs if isinstance(output, ComplexRef)}
        self._shown = {output.name for output in plan.outputs if isinstance(output, Ref)}
        self._reusing = _reusing_calls(plan) & self._shown
        self._shown -= self._reusing  # eager's results of these operators are no views
        if training:
            self._shown &= self._related(plan)
        self._owners = self._find_owners(plan)

    def _related(self, plan: Plan) -> set[str]:
        """Return the results that share memory with an argument, a constant or another result.

        The views among them tell autograd of writes. Others of a training graph are given to callers as their own.
        """
        returned = [output.name for output in plan.outputs if isinstance(output, Ref | ComplexRef)]
        known = {self.region(item.name) for item in plan.inputs if isinstance(item, Value)}
        known.update(value.name for value in plan.constants)
        over = Counter(map(self.region, returned))
        return {name for name in returned if over[self.region(name)] > 1 or self.region(name) in known}

    def _find_owners(self, plan: Plan) -> dict[str, str]:
        """Return the value that each storage is allocated as: the only one in it, or the returned one."""
        occupants: dict[str, list[str]] = {}
        for buffer, placement in plan.buffers:
            if placement.storage is not None:
                occupants.setdefault(placement.storage, []).append(buffer)
        returned = {self.root(output.name) for output in plan.outputs if isinstance(output, Ref)}
        owners: dict[str, str] = {}
        for storage, values in occupants.items():
            owner = next((name for name in values if name in returned), None)
            if owner is not None or len(values) == 1:
                owners[storage] = owner or values[0]
        return owners

    # --- defined by a step ----------------------------------------------------------------------------------

    def made(self, name: str) -> Code:
        """Return the variable of a value that exists as a tensor from here on."""
        self._made.add(name)
        return self._names.value(name)

    def result(self, name: str | None, pairs: Sequence[str] = ()) -> Code:
        """Return the variable of a call's result; results in ``pairs`` are complex tensors."""
        if name is None:
            return Code("_")
        self._made.add(name)
        self._called.add(name)
        return self.whole(name) if name in pairs else self._names.value(name)

    def whole(self, name: str) -> Code:
        """Return the variable of the complex tensor whose memory is the value ``name``, from here on."""
        found = self.wholes[name] = self._names.whole(name)
        return found

    def allocate(self, storage: str) -> None:
        """Allocate a storage: with the type of its owner, or as bytes."""
        if storage in self._owners:
            self._allocate_value(self._owners[storage])
            return
        item = self.storages[storage]
        size = self._names.terms((item.nbytes,))
        name = self._names.storage(storage)
        self._lines.append(code("{} = {}({}, (1,), torch.uint8)", name, _allocator(item.device), size))

    def _allocate_value(self, name: str) -> None:
        """Allocate a storage as the tensor of its owner."""
        type_ = self.placements[name].type
        shape, layout, device = type_.shape, type_.layout, type_.device
        terms, value = self._names.terms, self.made(name)
        if name in self._returned:
            like = code("{}, {}", terms(shape[:-1]), terms(complex_strides(layout.strides)))
            whole = self.whole(name)
            self._empty(whole, like, floordiv(layout.offset, 2), COMPLEX_DTYPES[type_.dtype], device)
            self._lines.append(code("{} = view_as_real({})", value, whole))
            return
        like = code("{}, {}", terms(shape), terms(layout.strides))
        self._empty(value, like, layout.offset, TORCH_DTYPES[type_.dtype], device)

    def _empty(self, name: Code, like: Code, offset: Size, dtype: str, device: Device) -> None:
        """Emit the allocation of a tensor."""
        if offset == 0:
            self._lines.append(code("{} = {}({}, {})", name, _allocator(device), like, dtype))
        else:
            start = self._names.term(offset)
            where = device_code(device)
            self._lines.append(code("{} = empty_at({}, {}, {}, {})", name, like, start, dtype, where))

    # --- uses of values -------------------------------------------------------------------------------------

    def tensor(self, name: str) -> Code:
        """Return the variable of a value as a tensor, defined at its first use.

        Raises :class:`CodegenError` for a value that no step has defined.
        """
        found = self._names.value(name)
        if name in self._made:
            return found
        placement = self.placements[name]
        if placement.base is not None:
            shown = name in self._shown
            base = placement.base if shown else self._nearest(placement.base, placement.type)
            under = self.placements[base]
            exact = name not in self._reusing or 1 not in placement.type.shape
            if exact and (
                placement.type == under.type or (not shown and _is_same_tensor(placement.type, under.type))
            ):
                return self.tensor(base)
            if under.storage is not None and base not in self._made and placement.type.layout.offset == 0:
                self._lines.append(code("{} = {}", found, self._over(name, under, placement.type)))
            else:
                view = self._strided(base, placement.type, "strided" if shown else "alias")
                self._lines.append(code("{} = {}", found, view))
        elif placement.storage is not None:
            self._lines.append(code("{} = {}", found, self._over(name, placement, placement.type)))
        else:
            raise CodegenError("a value is read before a step defines it", node=name)
        self._made.add(name)
        return found

    def _nearest(self, name: str, type_: TensorType) -> str:
        """Return the buffer under ``name``, or itself, to make a view of ``type_`` of: a tensor that exists already, so
        that those between are not made for the view alone."""
        while name not in self._made:
            base = self.placements[name].base
            if base is None or {self.placements[each].type.dtype for each in (base, name)} != {type_.dtype}:
                break
            name = base
        return name

    def placed(self, name: str) -> Code:
        """Return a value as a tensor, or the argument of the caller where it is an object."""
        return self.tensor(name) if name in self.placements else self._names.value(name)

    def complex(self, name: str) -> Code:
        """Return a value as a complex tensor: the known one over its memory, or a view."""
        found = self.tensor(name)
        for value, whole in self.wholes.items():
            if found == self._names.value(value):
                return whole
        # AOTAutograd rebuilds a view from its base, which must not be the pairs.
        return code("view_as_complex({}).detach()", found)

    def root(self, name: str) -> str:
        """Return the buffer whose memory a buffer shares in the end."""
        base = self.placements[name].base if name in self.placements else None
        return name if base is None else self.root(base)

    def _over(self, name: str, placement: Placement, type_: TensorType) -> Code:
        """Return the tensor of the value ``name`` over the part of a storage that starts at ``placement``."""
        assert placement.storage is not None
        shape, strides = self._names.terms(type_.shape), self._names.terms(type_.layout.strides)
        owner = self._owners.get(placement.storage)
        memory = self._names.storage(placement.storage) if owner is None else self._names.value(owner)
        if placement.offset != 0:
            memory = code("{}[{}:]", memory, self._names.term(placement.offset))
        how = "view" if name in self._shown else "alias_as"
        return code("{}({}, {}, {}, {})", how, memory, TORCH_DTYPES[type_.dtype], shape, strides)

    def _strided(self, name: str, type_: TensorType, how: str) -> Code:
        """Return a view of ``name``'s memory, made by the function ``how``.

        Offsets count from the root of both, so the offset of the base is subtracted.
        """
        base, under = self.tensor(name), self.placements[name].type
        kind = ""
        if under.dtype != type_.dtype:
            base = code("{}.view({})", base, TORCH_DTYPES[type_.dtype])
            # AOTAutograd rebuilds a view from its base, but without the change of dtype.
            kind = ".detach()"
        offset = self._names.term(add(type_.layout.offset, mul(under.layout.offset, -1)))
        shape, strides = self._names.terms(type_.shape), self._names.terms(type_.layout.strides)
        return code("{}({}, {}, {}, {}){}", how, base, shape, strides, offset, kind)

    # --- addresses ------------------------------------------------------------------------------------------

    def memory(self, name: str) -> MemoryLocation:
        """Return the start of a buffer's memory, in a storage or in the buffer that it is a view of."""
        placement = self.placements[name]
        if placement.storage is not None:
            owner = self._owners.get(placement.storage)
            if owner is None:
                return MemoryLocation(placement.storage, placement.offset, storage=True)
            # The memory of a value that is alone in an arena begins where the value does.
            return MemoryLocation(owner, add(placement.offset, mul(self.placements[owner].offset, -1)))
        if placement.base is not None and name not in self._called:
            # A view's offset is part of the kernel's index, relative to the first element of the base.
            return self.memory(placement.base)
        return MemoryLocation(name)

    def given(self, name: str) -> TensorType | None:
        """Return the type of a buffer that the program does not allocate; ``None`` for others."""
        owner = name
        while owner not in self._called and (base := self.placements[owner].base) is not None:
            owner = base
        return None if self.placements[owner].storage is not None else self.placements[name].type

    def region(self, name: str) -> str:
        """Return one name for all buffers that may overlap: a storage, or the root of all views."""
        placement = self.placements[name]
        if placement.base is not None:
            return self.region(placement.base)
        return placement.storage or name

    def address(self, location: MemoryLocation) -> Code:
        """Return the address of the owner of a :meth:`memory` location, without the owner's own offset."""
        if location.storage:
            return code("{}.data_ptr()", self._names.storage(location.owner))
        first = code("{}.data_ptr()", self._names.value(location.owner))
        type_ = self.placements[location.owner].type
        if location.owner in self._called or type_.layout.offset == 0:
            return first
        return code("{} - ({})", first, self._names.term(mul(type_.layout.offset, type_.dtype.itemsize)))


def _reusing_calls(plan: Plan) -> set[str]:
    """Return the values that kernels write in place to the result of a call."""
    placements, kernels = dict(plan.buffers), {kernel.name: kernel for kernel in plan.kernels}
    made = {name for step in plan.steps for name in new_results(step)}
    written = {name for step in plan.steps if isinstance(step, Launch) for name in written_by(step, kernels)}
    return {name for name in written if name not in made and memory_root(name, placements) in made}


def _is_same_tensor(a: TensorType, b: TensorType) -> bool:
    """Report whether views of the two types over one memory are equal.

    An operator's result may have other strides than its type where a dimension has a single element.
    """
    known = (
        (each.shape, each.layout.strides, each.layout.offset, each.dtype, each.device) for each in (a, b)
    )
    return 1 not in a.shape and next(known) == next(known)


def complex_strides(strides: Sequence[Size]) -> tuple[Size, ...]:
    """Return the strides of the complex tensor over pairs of these strides."""
    return tuple(floordiv(stride, 2) for stride in strides[:-1])


def device_code(device: Device) -> str:
    """Return a device as an argument: the first GPU is the current device, others are known by number."""
    return f"gpu[{device.index}]" if device.index else f"torch.device({device.kind!r})"


def _allocator(device: Device) -> str:
    """Return the allocator of a device in a host program."""
    if device.index:
        return f"empty_gpu[{device.index}]"
    return _ALLOCATORS.get(device.kind) or f"empty_on({device.kind!r})"
