"""Generated programs of views and writes, compiled by litz and compared with eager: `python -m differential` with
`tests/` on the path."""
