"""Spelling of dtypes, operations and scopes in C++."""
