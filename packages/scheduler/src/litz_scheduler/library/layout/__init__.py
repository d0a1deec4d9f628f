"""Memory layouts of images: channels-last propagation and its minimum cut."""
