"""The tensors of a host program: memory for them, views of them, and their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from litz.host.code import Code, code
from litz.host.names import Names
from litz.host.program import MemoryLocation
from litz.host.torch_types import COMPLEX_DTYPES, TORCH_DTYPES
from litz_ir.device import Device
from litz_ir.errors import CodegenError
from litz_ir.loops import ComplexRef, Ref, TensorType
from litz_ir.plan import Placement, Plan, Storage
from litz_ir.symbols import Size, add, floordiv, mul

ALLOCATORS = MappingProxyType({"cpu": "empty", "cuda": "empty_cuda"})
"""The names, in a host program, of :mod:`litz.host.torch_memory`'s functions by kind of device."""


class TensorVariables:
    """Which variable holds a value. Those that no step makes are views, and ``lines`` get one when it is first needed.

    ``wholes`` are the variables of the complex tensors by the value that is their memory as pairs.
    """

    def __init__(self, plan: Plan, names: Names, lines: list[Code]) -> None:
        self.placements: dict[str, Placement] = dict(plan.buffers)
        self.storages: dict[str, Storage] = {storage.name: storage for storage in plan.storages}
        self.wholes: dict[str, Code] = {}
        self._names = names
        self._lines = lines
        self._made = {value.name for value in plan.constants}
        self._called: set[str] = set()
        self._returned = {output.name for output in plan.outputs if isinstance(output, ComplexRef)}
        self._shown = {output.name for output in plan.outputs if isinstance(output, Ref)}
        self._owners = self._find_owners(plan)

    def _find_owners(self, plan: Plan) -> dict[str, str]:
        """The value that a storage is allocated as: the one that lies in it, or that of them which is returned."""
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

    # --- made by a step -------------------------------------------------------------------------------------

    def made(self, name: str) -> Code:
        """The variable of a value that the program now holds as a tensor."""
        self._made.add(name)
        return self._names.value(name)

    def result(self, name: str | None, pairs: Sequence[str] = ()) -> Code:
        """The variable that a call's result is assigned to: one of ``pairs`` comes as a complex tensor."""
        if name is None:
            return Code("_")
        self._made.add(name)
        self._called.add(name)
        return self.whole(name) if name in pairs else self._names.value(name)

    def whole(self, name: str) -> Code:
        """The variable of the complex tensor whose memory is the value ``name``, from here on."""
        found = self.wholes[name] = self._names.whole(name)
        return found

    def allocate(self, storage: str) -> None:
        """Memory for a storage: of its owner's type where it has one, else bytes."""
        if storage in self._owners:
            self._allocate_value(self._owners[storage])
            return
        item = self.storages[storage]
        size = self._names.terms((item.nbytes,))
        name = self._names.storage(storage)
        self._lines.append(code("{} = {}({}, (1,), torch.uint8)", name, _allocator(item.device), size))

    def _allocate_value(self, name: str) -> None:
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
        if offset == 0:
            self._lines.append(code("{} = {}({}, {})", name, _allocator(device), like, dtype))
        else:
            place = self._names.term(offset)
            where = device_code(device)
            self._lines.append(code("{} = empty_at({}, {}, {}, {})", name, like, place, dtype, where))

    # --- where values are -----------------------------------------------------------------------------------

    def tensor(self, name: str) -> Code:
        """The variable that holds a value as a tensor, made from its placement when first needed.

        Raises :class:`CodegenError` for a value that no step has defined.
        """
        found = self._names.value(name)
        if name in self._made:
            return found
        placement = self.placements[name]
        if placement.base is not None:
            under = self.placements[placement.base]
            if placement.type == under.type:
                return self.tensor(placement.base)
            if (
                under.storage is not None
                and placement.base not in self._made
                and placement.type.layout.offset == 0
            ):
                self._lines.append(code("{} = {}", found, self._over(under, placement.type)))
            else:
                shown = name in self._shown
                view = self._strided(placement.base, placement.type, "strided" if shown else "alias")
                self._lines.append(code("{} = {}", found, view))
        elif placement.storage is not None:
            self._lines.append(code("{} = {}", found, self._over(placement, placement.type)))
        else:
            raise CodegenError("a value is read before a step defines it", node=name)
        self._made.add(name)
        return found

    def placed(self, name: str) -> Code:
        """A value as a tensor where it is one; what only calls can use is what the caller gave."""
        return self.tensor(name) if name in self.placements else self._names.value(name)

    def complex(self, name: str) -> Code:
        """A value as a complex tensor: the one that its memory is known by, or a view."""
        found = self.tensor(name)
        for value, whole in self.wholes.items():
            if found == self._names.value(value):
                return whole
        # AOTAutograd makes a view anew from the base that torch remembers, which must not be the pairs.
        return code("view_as_complex({}).detach()", found)

    def root(self, name: str) -> str:
        """The buffer whose memory a buffer shares in the end."""
        base = self.placements[name].base if name in self.placements else None
        return name if base is None else self.root(base)

    def _over(self, place: Placement, type_: TensorType) -> Code:
        """A tensor over the part of a storage that ``place`` says begins there."""
        assert place.storage is not None
        shape, strides = self._names.terms(type_.shape), self._names.terms(type_.layout.strides)
        owner = self._owners.get(place.storage)
        memory = self._names.storage(place.storage) if owner is None else self._names.value(owner)
        if place.offset != 0:
            memory = code("{}[{}:]", memory, self._names.term(place.offset))
        return code("view({}, {}, {}, {})", memory, TORCH_DTYPES[type_.dtype], shape, strides)

    def _strided(self, name: str, type_: TensorType, how: str) -> Code:
        """A view of ``name``'s memory, made by the function ``how``. Offsets are counted from the root of both, so the
        base's own is taken off."""
        base, under = self.tensor(name), self.placements[name].type
        kind = ""
        if under.dtype != type_.dtype:
            base = code("{}.view({})", base, TORCH_DTYPES[type_.dtype])
            # AOTAutograd makes a view anew from the base that torch remembers, but forgets another dtype.
            kind = ".detach()"
        offset = self._names.term(add(type_.layout.offset, mul(under.layout.offset, -1)))
        shape, strides = self._names.terms(type_.shape), self._names.terms(type_.layout.strides)
        return code("{}({}, {}, {}, {}){}", how, base, shape, strides, offset, kind)

    # --- addresses ------------------------------------------------------------------------------------------

    def memory(self, name: str) -> MemoryLocation:
        """Where the memory of a buffer begins: in a storage, or with what it is a view of when the offset is none."""
        placement = self.placements[name]
        if placement.storage is not None:
            owner = self._owners.get(placement.storage)
            return (
                MemoryLocation(placement.storage, placement.offset, storage=True)
                if owner is None
                else MemoryLocation(owner)
            )
        if placement.base is not None and name not in self._called:
            # A view's offset is part of the kernel's own index, counted from the base's first element.
            return self.memory(placement.base)
        return MemoryLocation(name)

    def given(self, name: str) -> TensorType | None:
        """The type of a buffer in memory that the program does not allocate, None for any other."""
        owner = name
        while owner not in self._called and (base := self.placements[owner].base) is not None:
            owner = base
        return None if self.placements[owner].storage is not None else self.placements[name].type

    def region(self, name: str) -> str:
        """One name for all buffers that may overlap: a storage, or what all are views of."""
        placement = self.placements[name]
        if placement.base is not None:
            return self.region(placement.base)
        return placement.storage or name

    def address(self, place: MemoryLocation) -> Code:
        """The address where the owner of what :meth:`memory` gave begins; a buffer's own offset is taken off."""
        if place.storage:
            return code("{}.data_ptr()", self._names.storage(place.owner))
        first = code("{}.data_ptr()", self._names.value(place.owner))
        type_ = self.placements[place.owner].type
        if place.owner in self._called or type_.layout.offset == 0:
            return first
        return code("{} - ({})", first, self._names.term(mul(type_.layout.offset, type_.dtype.itemsize)))


def complex_strides(strides: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of the complex tensor over pairs of these strides."""
    return tuple(floordiv(stride, 2) for stride in strides[:-1])


def device_code(device: Device) -> str:
    """A device as an argument. The first GPU is the one that is current while the program runs, the others it knows by
    their numbers."""
    return f"gpu[{device.index}]" if device.index else f"torch.device({device.kind!r})"


def _allocator(device: Device) -> str:
    """What a host program calls for memory on a device."""
    if device.kind not in ALLOCATORS:
        raise CodegenError(f"the host program has no memory on {device}", hint="report the plan's text form")
    return f"empty_gpu[{device.index}]" if device.index else ALLOCATORS[device.kind]
