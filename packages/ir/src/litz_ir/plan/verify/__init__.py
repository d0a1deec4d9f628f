"""Verifiers of plans and kernels, which `litz_ir.verifier.verify` runs."""
