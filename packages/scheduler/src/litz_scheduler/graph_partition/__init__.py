"""Graph partition: the steps of a plan that are captured as CUDA graphs."""

from litz_scheduler.graph_partition.obstacles import Routines
from litz_scheduler.graph_partition.partition import GraphPartition, PartitionGraph

__all__ = ["GraphPartition", "PartitionGraph", "Routines"]
