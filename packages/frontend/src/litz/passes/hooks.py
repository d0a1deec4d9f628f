"""Users' passes over the FX graphs of one compilation, at the points between Dynamo and lowering."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from torch.fx import Graph, GraphModule, Node

from litz.passes import LOOP_STAGES, Passes
from litz.passes.graphs import run_graph_passes, with_functions
from litz_ir.fused import Decision
from litz_lowering import remove_no_ops

_SOURCE = "_dynamo_source"
"""Attribute of a captured graph's inputs, which AOTAutograd reads and copies of nodes lack."""


@dataclass(slots=True)
class GraphHooks:
    """The passes over FX graphs of one call of the backend. They change graphs in place."""

    passes: Passes
    """Passes of all stages, of which those over FX graphs run here."""

    earlier: list[Decision] = field(default_factory=list)
    """Decisions of passes over the captured and the joint graph, which the forward graph reports."""

    @property
    def rewrites_aot(self) -> bool:
        """True where passes change AOT graphs after the joint graph was divided."""
        return bool(self.passes.post_grad_before or self.passes.post_grad_after)

    def pre_grad(self, gm: GraphModule) -> None:
        """Run the passes over a graph that Dynamo captured."""
        self.earlier += run_graph_passes(gm, "pre_grad", self.passes.pre_grad, traced=False)

    def before_joint(self, gm: GraphModule) -> None:
        """Run the first passes over a joint graph."""
        self.earlier += run_graph_passes(gm, "joint_before", self.passes.joint_before)

    def after_joint(self, gm: GraphModule) -> None:
        """Run the last passes over a joint graph."""
        self.earlier += run_graph_passes(gm, "joint_after", self.passes.joint_after)

    def aot(self, gm: GraphModule, kind: str) -> tuple[Decision, ...]:
        """Run the passes over an AOT graph; return the decisions that its report shows.

        An ``inference`` graph was no joint graph before, so that the passes over these run too.
        """
        if kind == "inference":
            self.before_joint(gm)
            self.after_joint(gm)
        own = self.post_grad(gm)
        if kind == "backward":
            return own
        earlier, self.earlier = tuple(self.earlier), []
        return earlier + own

    def post_grad(self, gm: GraphModule) -> tuple[Decision, ...]:
        """Run the passes over AOT graphs alone; return their decisions."""
        found = run_graph_passes(gm, "post_grad_before", self.passes.post_grad_before)
        if self.passes.post_grad_after:
            for module in with_functions(gm):
                remove_no_ops(module)
            found += run_graph_passes(gm, "post_grad_after", self.passes.post_grad_after)
        return found


def graph_hooks(passes: Passes) -> GraphHooks | None:
    """Return the hooks of a compilation; ``None`` without passes over FX graphs."""
    stages = (each.name for each in fields(Passes) if each.name not in LOOP_STAGES)
    return GraphHooks(passes) if any(getattr(passes, stage) for stage in stages) else None


def own_copy(gm: GraphModule) -> GraphModule:
    """Return a copy of a graph for passes to change, which shares parameters and other attributes."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    graph.output(graph.graph_copy(gm.graph, copies))
    graph.output_node().meta = dict(gm.graph.output_node().meta)
    for node, copied_node in copies.items():
        if hasattr(node, _SOURCE):
            setattr(copied_node, _SOURCE, getattr(node, _SOURCE))
    graph._codegen = gm.graph._codegen
    copied = GraphModule(gm, graph, type(gm).__name__)
    copied.__dict__.update({name: value for name, value in vars(gm).items() if name not in vars(copied)})
    copied.meta.update(gm.meta)
    return copied
