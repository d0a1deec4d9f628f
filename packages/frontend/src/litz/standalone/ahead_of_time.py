"""Compiled graphs that torch serialises with the code around them: ``torch.compile(f).aot_compile(...)``, and packages
of ``torch._dynamo.config.caching_precompile``.

torch writes its part (guards and bytecode) as a pickle. litz's part inside of it is the bytes of an artifact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch._dynamo.aot_compile_types import SerializableCallable
from torch._dynamo.precompile_context import BackendCacheArtifact, PrecompileContext
from torch.fx import GraphModule

from litz.notices import log_once
from litz.settings import Config
from litz.standalone.artifact import CompiledArtifact
from litz.standalone.compile_graph import compiled_artifact
from litz_ir.errors import ArtifactError

_NAME = "a function that was compiled ahead of time"


class SerializableGraph(SerializableCallable):
    """A compiled graph in the protocol of ``aot_compile``."""

    def __init__(self, artifact: CompiledArtifact) -> None:
        self.artifact = artifact

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.artifact(*args, **kwargs)

    @classmethod
    def serialize_compile_artifacts(cls, fn: SerializableGraph) -> bytes:
        """Return a graph as the bytes of an artifact."""
        return fn.artifact.to_bytes()

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> SerializableGraph:
        """Return the graph of :meth:`serialize_compile_artifacts`; raise ``ArtifactError`` for other bytes."""
        return cls(CompiledArtifact.from_bytes(data, _NAME))


class PackagedGraph(BackendCacheArtifact[Callable[..., Any]]):
    """A compiled graph in torch's packages: its content is the bytes of an artifact."""

    def after_deserialization(self) -> Callable[..., Any]:
        """Return the graph as a function; raise ``ArtifactError`` for damaged bytes."""
        artifact = CompiledArtifact.from_bytes(self.content, _NAME)
        return lambda *args: artifact(*args)


def serializable_graph(gm: GraphModule, inputs: Sequence[Any], config: Config) -> SerializableGraph:
    """Compile a graph inside ``aot_compile``; raise ``ArtifactError`` for one that cannot be saved."""
    artifact = compiled_artifact(gm, inputs, config, "from_tracing_context")
    if not artifact.is_saveable():
        hint = "torch.compile compiles it when it is first called"
        raise ArtifactError(
            f"this function cannot be compiled ahead of time: {artifact.unsaveable}", hint=hint
        )
    return SerializableGraph(artifact)


def packaged_graph(gm: GraphModule, inputs: Sequence[Any], config: Config) -> Callable[..., Any]:
    """Compile a graph that torch puts into a package; one that cannot be saved is compiled in each process."""
    artifact = compiled_artifact(gm, inputs, config, "from_tracing_context")
    if artifact.is_saveable():
        PrecompileContext.record_artifact(PackagedGraph(str(gm._backend_id), artifact.to_bytes()))
    else:
        log_once(f"litz: a graph is in no package of torch: {artifact.unsaveable}", logging.INFO)
    return lambda *args: artifact(*args)
