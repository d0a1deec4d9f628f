"""Index terms: integer expressions over symbols, their ranges, their simplification, and proofs about them.

`litz_ir.symbols.sympy_io`, the conversion from and to sympy, is not imported here, since only its users need sympy.
"""

from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.polynomials import (
    add,
    coefficient,
    mul,
    multiply,
    product,
    shifted,
    subtract,
    summands,
)
from litz_ir.symbols.proofs import Predicate, Prover, known_divides, known_equal, known_le, known_lt, prove
from litz_ir.symbols.quotients import cdiv, floordiv, mod
from litz_ir.symbols.ranges import bounds, extent, interval_bounds, is_natural
from litz_ir.symbols.simplification import Simplifier, simplify
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.table import SymbolInfo, SymbolKind, SymbolTable
from litz_ir.symbols.term import Arithmetic, Atom, Range, Size, Symbol, Term, evaluate, free_symbols, symbol

Term.arithmetic = Arithmetic(
    add=add,
    shift=shifted,
    subtract=subtract,
    multiply=multiply,
    floordiv=floordiv,
    mod=mod,
)

__all__ = [
    "Atom",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Predicate",
    "Product",
    "Prover",
    "Range",
    "Simplifier",
    "Size",
    "Sum",
    "Symbol",
    "SymbolInfo",
    "SymbolKind",
    "SymbolTable",
    "Term",
    "add",
    "summands",
    "bounds",
    "cdiv",
    "coefficient",
    "evaluate",
    "extent",
    "floordiv",
    "free_symbols",
    "interval_bounds",
    "is_natural",
    "known_divides",
    "known_equal",
    "known_le",
    "known_lt",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "product",
    "prove",
    "simplify",
    "substitute",
    "symbol",
]
