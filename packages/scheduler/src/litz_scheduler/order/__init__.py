"""In which order groups run: what must come before what, and orders that may hold less memory than eager's."""
