"""Whole models against eager: a training step and an inference of each, judged tensor by tensor."""
