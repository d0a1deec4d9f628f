"""Tests of every form of GPU kernel, at extents with every kind of tail, in every dtype, against an f64 run of
eager."""
