"""Source of host programs."""
