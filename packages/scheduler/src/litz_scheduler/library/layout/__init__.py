"""Memory layouts of activations: channels-last propagation and its minimum cut."""
