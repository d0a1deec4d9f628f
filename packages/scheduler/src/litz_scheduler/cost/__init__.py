"""Costs: pure functions of sizes and capabilities."""
