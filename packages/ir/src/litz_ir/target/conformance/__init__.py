"""The conformance suite: small kernels that a target runs, compared with the reference interpreter."""

from litz_ir.target.cases import Case
from litz_ir.target.conformance.suite import Report, case_plan, conformance_cases, lacking, run_conformance

__all__ = ["Case", "Report", "case_plan", "conformance_cases", "lacking", "run_conformance"]
