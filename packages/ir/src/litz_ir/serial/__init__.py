"""Serial form of graphs and plans: JSON that is versioned, checked on the way in, and never executed."""

from litz_ir.serial.document import digest, from_json, to_json

__all__ = ["digest", "from_json", "to_json"]
