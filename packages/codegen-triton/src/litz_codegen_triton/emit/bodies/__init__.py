"""Loop bodies: expressions, stores and atomic operations on tiles."""
