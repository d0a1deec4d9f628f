"""GPU scheduling: passes that replace each kernel's tile request with a form, tile sizes, warps and stages."""
