"""Programs and calls that run in eager, since AOTAutograd would compute something else for them."""
