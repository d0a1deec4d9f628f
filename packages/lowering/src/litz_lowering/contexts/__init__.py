"""The context that rules get, and the graph builder, values and registry behind it."""
