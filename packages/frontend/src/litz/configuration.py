"""The options in force: ``litz.config``, and the warnings about variables of the environment that are Inductor's."""

from __future__ import annotations

import os

from litz.options import variable_notices
from litz.settings import ConfigHandle

config = ConfigHandle(os.environ)
"""The options: ``litz.config.patch(...)``, ``litz.config.fallback = ...``; see :class:`litz.settings.Config`."""

FOREIGN_VARIABLES = variable_notices(os.environ)
"""Warnings about Inductor's environment variables, logged when litz first compiles a graph."""
