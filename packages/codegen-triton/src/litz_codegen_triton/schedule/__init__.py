"""GPU scheduling: the passes that put a form, tile sizes, warps and stages in the place of each kernel's request."""
