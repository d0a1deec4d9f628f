"""The interchange form of graphs and plans: JSON with named fields, for programs in other languages."""

from litz_ir.interchange.document import from_interchange, to_interchange
from litz_ir.interchange.json_schema import interchange_schema

__all__ = ["from_interchange", "interchange_schema", "to_interchange"]
