"""Accuracy of the vector maths over all floats: `python -m maths`, or `nox -s maths`."""
