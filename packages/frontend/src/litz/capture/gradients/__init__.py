"""Uses of a compiled backward beyond one gradient: batches of gradients, and gradients of gradients."""
