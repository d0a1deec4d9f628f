"""Graph partition: which steps of a plan are captured as CUDA graphs."""

from litz_scheduler.graph_partition.obstacles import Routines
from litz_scheduler.graph_partition.parts import GraphPartition, PartitionGraph

__all__ = ["GraphPartition", "PartitionGraph", "Routines"]
