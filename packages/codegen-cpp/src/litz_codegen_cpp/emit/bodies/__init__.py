"""Loop bodies in C++: expressions, indices, loads and stores."""
