"""Passes that fuse operations into kernels."""

from litz_scheduler.fusion.groups import FusionGroups
from litz_scheduler.fusion.horizontal_fusion import HorizontalFusion
from litz_scheduler.fusion.storage_classes import StorageClasses
from litz_scheduler.fusion.vertical_fusion import VerticalFusion

__all__ = ["FusionGroups", "HorizontalFusion", "StorageClasses", "VerticalFusion"]
