"""Failures, their reports and repros."""
