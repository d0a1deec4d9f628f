"""The plan: a fused graph scheduled for one target."""
