"""Dtypes, devices and symbols of torch as litz has them."""
