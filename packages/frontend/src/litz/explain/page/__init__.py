"""The page of an explanation: layout of graphs, charts, source texts, and the template that joins them."""
