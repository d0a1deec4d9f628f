"""Facts about loop graphs: costs, readers, iteration spaces, loop orders, fusion candidates."""
