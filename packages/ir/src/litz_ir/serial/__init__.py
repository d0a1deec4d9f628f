"""The serial form of graphs and plans: versioned JSON, checked when it is read, and never executed."""

from litz_ir.serial.document import digest, from_json, to_json

__all__ = ["digest", "from_json", "to_json"]
