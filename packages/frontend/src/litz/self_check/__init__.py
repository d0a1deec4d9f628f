"""Self-check: compiled graphs compared with ATen during calls; imported where ``config.self_check`` asks for it."""
