"""Every form of GPU kernel, at extents with every kind of tail, in every dtype, beside an f64 run of eager."""
