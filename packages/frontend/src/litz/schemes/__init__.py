"""Compile schemes: ways to run the stages of a graph other than in order in this process."""
