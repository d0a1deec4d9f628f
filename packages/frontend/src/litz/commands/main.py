"""The command ``litz``, also ``python -m litz``: arguments, and the functions that they choose."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from rich.console import Console

from litz.commands.bench import bench
from litz.commands.cache import add_parsers, cache
from litz.commands.doctor import doctor
from litz.commands.explain import explain
from litz.commands.info import info
from litz.commands.run import run
from litz.commands.scripts import require_script
from litz_ir.errors import LitzError

_DEVICE = "litz.commands.device"
"""Module of the command ``device``, loaded for it alone: it needs the conformance suites."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, that of a script, or 1 after an error, which is printed."""
    given = _parser().parse_args(arguments)
    console = Console()
    try:
        return _dispatch(console, given)
    except LitzError as error:
        return _failed(str(error))
    except OSError as error:
        if given.command != "cache":  # a script's own
            raise
        return _failed(f"cache: {error}")


def _failed(text: str) -> int:
    """Print the text of an error; return the exit status."""
    Console(stderr=True).print(text, markup=False, soft_wrap=True)
    return 1


def _dispatch(console: Console, given: argparse.Namespace) -> int:
    """Call the function of a command."""
    if "script" in given:
        require_script(given.script)
    match given.command:
        case "explain":
            return explain(given.script, given.arguments, given.output, given.json, measure=given.measure)
        case "run":
            return run(given.script, given.arguments)
        case "bench":
            return bench(console, given.script, given.arguments, given.seconds)
        case "doctor":
            return doctor(console)
        case "device":
            status: int = import_module(_DEVICE).device(console, given.kind)
            return status
        case "info":
            return info(console)
        case _:
            return cache(console, given)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="litz", description="A backend for torch.compile, in layers.")
    commands = parser.add_subparsers(dest="command", required=True)
    explained = commands.add_parser(
        "explain", help="run a script, and write a page about all that litz compiles"
    )
    explained.add_argument(
        "--output", default="litz-explain.html", help="file of the page; default %(default)s"
    )
    explained.add_argument("--json", help="file of the same report as JSON; none by default")
    explained.add_argument(
        "--measure", action="store_true", help="time kernels, calls and the machine's limits"
    )
    _takes_script(explained)
    _takes_script(commands.add_parser("run", help="run a script with litz as the default backend"))
    timed = commands.add_parser(
        "bench", help="run a script, and time each of its graphs in eager and compiled"
    )
    timed.add_argument(
        "--seconds", type=float, default=0.2, help="time for each measurement; default %(default)s"
    )
    _takes_script(timed)
    commands.add_parser("doctor", help="check compiler, devices, versions and cache, and say what to mend")
    checked = commands.add_parser(
        "device", help="check the functions of a device out of tree, and run conformance"
    )
    checked.add_argument("kind", help="kind of the device, as torch names it")
    commands.add_parser("info", help="targets, their capabilities, the cache folder")
    kept = commands.add_parser("cache", help="contents of the cache")
    actions = kept.add_subparsers(dest="action", required=True)
    add_parsers(actions)
    return parser


def _takes_script(parser: argparse.ArgumentParser) -> None:
    """Add a script and its arguments to the parser of a command."""
    parser.add_argument("script", help="file of a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
