"""Which values share memory, and when memory is taken and given back."""
