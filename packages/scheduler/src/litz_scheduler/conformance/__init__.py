"""Second half of the conformance suite: whole graphs through the scheduler, a target and the executor."""

from litz_scheduler.conformance.case import GraphCase
from litz_scheduler.conformance.corpus import graph_cases
from litz_scheduler.conformance.suite import lacking, run_graph_conformance

__all__ = ["GraphCase", "graph_cases", "lacking", "run_graph_conformance"]
