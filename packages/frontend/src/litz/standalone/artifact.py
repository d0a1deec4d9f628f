"""Compiled artifacts: programs that were compiled outside of ``torch.compile``, which can be saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from litz.artifact import Artifact, CompiledCapture
from litz.cache.artifacts import ArtifactCache
from litz.capture.counters import count_graph
from litz.configuration import config
from litz.host.runtime.load import HostFunction
from litz.loading import loader_of
from litz.settings import Config
from litz.standalone.calls import program_call
from litz.standalone.compiled_program import CompiledProgram, Machine
from litz.standalone.container import Contents, checked_format, from_bytes, read, to_bytes, write
from litz.standalone.document import from_files, to_files, writers
from litz.targets import devices_of, targets_for
from litz_ir.errors import ArtifactError, ExternNotFound


class CompiledArtifact:
    """A compiled graph as a function, which can be saved and loaded by another process.

    ``litz.compile`` and ``litz.standalone_compile`` make it, and :meth:`load`. It is called with the arguments of the
    graph, or with one list or tuple of them, and returns what the graph returns.
    """

    __slots__ = ("_binaries", "_call", "_program", "_unsaveable")

    def __init__(
        self,
        call: Callable[..., Any],
        program: CompiledProgram | None = None,
        unsaveable: str = "",
        binaries: Contents | ArtifactCache | None = None,
    ) -> None:
        self._call = call
        self._program = program
        self._unsaveable = unsaveable
        # It may own a temporary folder with the binaries, which a first call may load, and which are saved.
        self._binaries = binaries

    def __call__(self, *args: Any) -> Any:
        """Call the graph with its inputs, or with one list or tuple of them; return what the graph returns.

        Raises ``ArtifactError`` for arguments of other dtypes, sizes, strides or device kinds than it was compiled for.
        """
        given = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        if self._program is None:
            return self._call(*given)
        return self._call(given)

    @property
    def unsaveable(self) -> str:
        """Reason that the artifact cannot be saved, as a sentence; empty where it can."""
        return self._unsaveable

    def is_saveable(self) -> bool:
        """Report whether the artifact can be saved."""
        return self._program is not None

    def save(self, *, path: str | Path, format: str = "binary") -> None:
        """Write the artifact: to a file (``binary``), or to a folder whose files can be read (``unpacked``).

        An artifact at the same path is replaced, in one step. Raises ``ArtifactError`` where the artifact cannot be
        saved, with the reason, and where the path cannot be written.
        """
        write(Path(path), checked_format(format), self._files(), writers())

    def to_bytes(self) -> bytes:
        """Return the content of a file of the format ``binary``; raise ``ArtifactError`` as :meth:`save` does."""
        return to_bytes(self._files(), writers())

    @staticmethod
    def load(*, path: str | Path, format: str = "binary") -> CompiledArtifact:
        """Load an artifact, without compiling anything.

        What is loaded is executed: a file or folder that belongs to another user, or that others may write, is
        refused. Raises ``ArtifactError`` for these, for a damaged artifact, and for one that other versions of litz
        or torch wrote, or that was compiled for another kind of device.
        """
        return _loaded(read(Path(path), checked_format(format), writers()), str(path))

    @staticmethod
    def from_bytes(data: bytes, name: str = "artifact") -> CompiledArtifact:
        """Load an artifact from the content of a file, which the caller trusts: what is loaded is executed.

        ``name`` names it in messages. Raises ``ArtifactError`` as :meth:`load` does.
        """
        return _loaded(Contents(from_bytes(data, writers(), name)), name)

    def _files(self) -> dict[str, bytes]:
        """Return the files of the artifact; raise ``ArtifactError`` where it cannot be saved."""
        if self._program is None:
            raise ArtifactError(f"this artifact cannot be saved: {self._unsaveable}")
        try:
            return to_files(self._program)
        except OSError as error:
            hint = "compile the graph again"
            raise ArtifactError(f"a binary of this artifact was deleted: {error}", hint=hint) from error


def _loaded(contents: Contents, where: str) -> CompiledArtifact:
    """Return the artifact of a container."""
    program = from_files(contents, where)
    known = machines_of(program.graphs)
    if len(known) != len(program.machines) or not all(map(Machine.runs, known, program.machines)):
        there, here = (", ".join(map(str, each)) for each in (program.machines, known))
        message = f"{where} was compiled for {there}, and this machine has {here}"
        raise ArtifactError(message, hint="compile the graph on such a machine")
    graphs = program.graphs
    forward = _graph_call(program, graphs.forward, where)
    backward = None if graphs.backward is None else _graph_call(program, graphs.backward, where)
    call = program_call(program, forward, backward)
    return CompiledArtifact(call, program, binaries=contents)


def machines_of(graphs: CompiledCapture, options: Config | None = None) -> tuple[Machine, ...]:
    """Return the kinds of devices that graphs run kernels on, with the instruction set or chip that ``options`` name:
    this machine's by default.

    Raises ``TargetError`` for a kind without an installed target.
    """
    artifacts = [each for each in (graphs.forward, graphs.backward) if each is not None]
    kinds = {each.plan.device.kind for each in artifacts}
    kinds |= {
        at.kind for each in artifacts for devices in devices_of(each.units, each.plan) for at in devices
    }
    targets = targets_for(sorted(kinds), options or config.current())
    known = targets.capabilities().items()
    return tuple(Machine(at.kind, each.name, tuple(sorted(each.features))) for at, each in known)


def _graph_call(program: CompiledProgram, artifact: Artifact, where: str) -> HostFunction:
    """Load a graph; raise ``ArtifactError`` where that fails."""
    options = config.current().replaced({"cuda_graphs": program.cuda_graphs, "freezing": program.freezing})
    kinds = [each.kind for each in program.machines]
    try:
        loader = loader_of(
            artifact, artifact.plan.name, targets_for(kinds, options), options, program.constants
        )
        compiled = loader.compiled()
    except ExternNotFound:
        raise
    except Exception as error:
        message = f"{where} cannot be loaded: {type(error).__name__}: {error}"
        raise ArtifactError(message, hint="format='unpacked' needs no temporary folder") from error
    count_graph(compiled)
    return compiled.call
