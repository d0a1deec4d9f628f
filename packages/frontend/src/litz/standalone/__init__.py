"""Compiled graphs that are saved and loaded: ``litz.standalone_compile`` and ``litz.CompiledArtifact``."""
