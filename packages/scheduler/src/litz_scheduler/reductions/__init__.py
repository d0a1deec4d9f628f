"""Passes that merge and divide reductions and scans."""
