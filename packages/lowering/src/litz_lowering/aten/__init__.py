"""Fallbacks to ATen and their reasons."""
