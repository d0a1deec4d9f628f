"""Compiled graphs, compared with ATen while they run; loaded where ``config.self_check`` asks for it."""
