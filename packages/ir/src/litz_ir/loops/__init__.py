"""The loop graph: tensor operations as loops and calls."""
