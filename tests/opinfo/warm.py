"""The process to fork others from: everything is imported, one function compiled, big sources read.

A first compilation imports much of torch, and Dynamo tokenizes each source file that it traces through, of which the
one with the database takes seconds; forked after that, a process has both.
"""

from __future__ import annotations

import tempfile

from torch._dynamo.funcname_cache import get_funcname
from torch.testing._internal import common_methods_invocations

from opinfo.entries import Unit
from opinfo.worker import Task, judgements, prepared

get_funcname(common_methods_invocations.__file__, 1)
with tempfile.TemporaryDirectory(prefix="litz-opinfo-") as folder, prepared(folder):
    for _, judge in judgements(Task(Unit("add", "f32"), {"gradient": 1})):
        judge()
