"""Schedules of kernels: tiles, cluster sizes, look-back scans."""
