"""Models that were loaded: callables with weights that can be replaced while other threads call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

import torch

from litz.capture.runtime_wrappers import with_materialised
from litz.deployment.binaries import Binaries
from litz.deployment.calls import CallForm
from litz.deployment.manifest import Manifest, Program
from litz.deployment.verification import Verification
from litz.deployment.weights import checked, refuse_untied, strided_copy
from litz_ir.errors import ArtifactError

Check = Callable[[Sequence[Any]], None]
"""Function that raises :class:`ArtifactError` for inputs that a model was not compiled for."""


class LoadedModel:
    """A model that :func:`litz.load` loaded: a function with the signature of the program that was exported.

    Calls from several threads at once each use one set of weights. What a call writes to buffers, it writes to this
    model's own.
    """

    def __init__(
        self,
        manifest: Manifest,
        program: Program,
        form: CallForm,
        checks: Sequence[Check],
        function: Callable[..., Sequence[Any]],
        weights: Sequence[torch.Tensor],
        verified: Verification | None,
        binaries: Binaries,
        where: str,
    ) -> None:
        self._manifest = manifest
        self._program = program
        self._form = form
        self._checks = tuple(checks)
        self._function = function
        self._weights = tuple(weights)
        self._verified = verified
        self._binaries = binaries  # a first call may read them
        self._where = where
        self._update = Lock()
        self._returned = manifest.tree.returned_inputs
        self._names = {
            name: k
            for k, each in enumerate(manifest.weights)
            if each.kind != "constant"
            for name in (each.name, *each.aliases)
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, without gradients; return results in the containers that the program was exported with.

        Raises ``ArtifactError`` for arguments of another form, dtype, size, stride or device than it was compiled
        for, and in the first call where the checksum of the weights differs.
        """
        verified = self._verified
        if verified is not None:
            verified.wait()
            self._verified = None
        inputs = self._form.inputs(args, kwargs)
        for check in self._checks:
            check(inputs)
        given = (*self._weights, *inputs)
        results = with_materialised(partial(self._function, *self._weights))(*inputs)
        if self._returned:
            results = list(results)
            for position, source in self._returned:
                results[position] = given[source]
        return self._form.results(results)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of the file, as JSON data: ``entry_points`` with inputs, outputs, symbols, calls and programs,
        ``weights``, ``files`` with checksums, and ``writers``, the versions that wrote it."""
        return self._manifest.document

    @property
    def isa(self) -> str:
        """Name of the instruction set or chip whose program is called, of those in the file."""
        return self._program.isa

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the weights by the names that the module's ``state_dict()`` has.

        They are the model's own tensors, not to be written to, but for buffers that calls overwrite, which are copies
        of the moment; one that a call overwrites meanwhile may be partly old.
        """
        weights, written = self._weights, self._manifest.tree.written
        return {name: weights[k].clone() if k in written else weights[k] for name, k in self._names.items()}

    def update_weights(self, state_dict: Mapping[str, torch.Tensor], *, partial: bool = False) -> None:
        """Replace weights by copies of others, in one step: a call that is running uses the weights it began with.

        Values that were computed from weights alone are computed again by the next call. ``partial`` allows names to
        be missing, whose weights stay. Raises ``ArtifactError`` for unknown and missing names, other dtypes and
        shapes, and two values for tied weights; nothing is replaced then.
        """
        unknown = sorted(state_dict.keys() - self._names.keys())
        if unknown:
            raise ArtifactError(
                f"{self._where} has no weight {unknown[0]}", hint="state_dict() has all names"
            )
        missing = [] if partial else [name for name in self._names if name not in state_dict]
        if missing:
            hint = "partial=True keeps the weights that are not given"
            raise ArtifactError(f"no value for the weight {missing[0]} of {self._where}", hint=hint)
        found: dict[int, torch.Tensor] = {}
        for name, value in state_dict.items():
            k = self._names[name]
            checked(name, value, self._manifest.weights[k], self._where)
            refuse_untied(name, self._manifest.weights[k], value, found.get(k))
            found[k] = value
        with self._update:
            weights = list(self._weights)
            for k, value in found.items():
                weights[k] = strided_copy(value, self._manifest.weights[k], weights[k].device)
            self._weights = tuple(weights)
