"""From a kernel of a plan to C++ text: pure, deterministic, and never aware of a compiler."""
