"""Routines of litz's own that host programs call: which calls they run, and the text of those."""

from litz_codegen_cpp.host.routines.call_site import CallSite, Routine, tensor_types
from litz_codegen_cpp.host.routines.table import ROUTINES

__all__ = ["ROUTINES", "CallSite", "Routine", "tensor_types"]
