"""Deployment: exported programs as files that are loaded without a compiler, by ``litz.aot_compile`` and
``litz.load``."""
