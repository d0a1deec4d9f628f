"""Settings of pip as variables of uv, which reads none of pip's: indexes, folders of wheels, constraints, certificates.

A machine whose pip is told where torch comes from says so to pip alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping

VARIABLES: Mapping[str, str] = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""The variable of uv for each of pip's settings that has one."""

_SEPARATORS: Mapping[str, str] = {"UV_FIND_LINKS": ","}
"""Separator of several values, where it is not a space."""

_SECTIONS = ("global", "install", ":env:")
"""Sections of pip's settings that hold for an installation, later ones before earlier ones."""


def listed_by_pip() -> str:
    """Return what ``pip config list`` prints; nothing where this Python has no pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def variables_of(listing: str) -> dict[str, str]:
    """Return uv's variables for the settings that ``pip config list`` printed.

    pip takes the newest version that any of its indexes has, where uv stops at the first index that has the package:
    several indexes are searched as by pip.
    """
    found: dict[str, str] = {}
    for section in _SECTIONS:
        for line in listing.splitlines():
            name, separator, value = line.partition("=")
            variable = VARIABLES.get(name.removeprefix(f"{section}."))
            if separator and name.startswith(f"{section}.") and variable is not None:
                values = ast.literal_eval(value).split()
                found[variable] = _SEPARATORS.get(variable, " ").join(values)
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return found
