"""Reductions, scans, clusters and look-back scans."""
