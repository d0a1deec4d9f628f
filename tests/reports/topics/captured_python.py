"""Python around tensors: containers, closures, generators, attributes, graph breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import nn

from reports.table import Compile, counted, report


@report("pytorch#197896", "a container of the closure that a method of a local class changes stays as it was")
def container_changed_by_a_local_class(compiled: Compile) -> object:
    log: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        class Helper:
            def touch(self) -> None:
                log.append(1)

        Helper().touch()
        return x + len(log)

    call = compiled(program)
    results = [call(counted(2)) for _ in range(2)]
    return results, log


@report("pytorch#169253", "a list of the class that forward appends to stays empty")
def list_of_the_class(compiled: Compile) -> object:
    class Model(nn.Module):
        items: ClassVar[list[Any]] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Model.items.append(x.sum())
            return x * 2

    call = compiled(Model())
    results = [call(counted(3)), call(counted(3, start=2))]
    return results, list(Model.items)


@report("pytorch#175855", "a list that grows while a generator reads it ends too early")
def list_that_grows(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        values = [x.sum()]

        def grow() -> Iterator[torch.Tensor]:
            for item in values:
                if len(values) < 3:
                    values.append(item + 1)
                yield item

        return torch.stack(list(grow())).sum()

    return compiled(program)(torch.ones(1))


@report("pytorch#197811", "two closures over different methods of tensors share a graph")
def closures_over_methods(compiled: Compile) -> object:
    def make(operation: Callable[..., Any]) -> Callable[..., Any]:
        def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = operation(x, y)
            return result

        return program

    x, y = torch.tensor(6.0), torch.tensor(3.0)
    pairs = (make(torch.add), make(torch.mul), make(lambda a, b: a - b))
    return [compiled(each)(x, y) for each in pairs]


GLOBAL = [1, 2, 3]


@report(
    "pytorch#120861",
    "a list that is an argument and a global is taken for one of them",
    differs="Dynamo has no guard for a list that is an argument and a global (under `aot_eager` too)",
)
def argument_and_global(compiled: Compile) -> object:
    call = compiled(lambda lst, x: x + GLOBAL[-1] + lst[-1])
    x = torch.ones(1)
    return [call(each, x) for each in (GLOBAL, list(reversed(GLOBAL)), [1, 2], [1, 2, 3, 2])]


@report("pytorch#103563", "an element of a nested list that was replaced is the old one")
def nested_list(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> Any:
        data: list[list[Any]] = [[1, 2, 3], [4, 5, 6]]
        for i in range(3):
            data[0][i] = x if i == 0 else data[0][i - 1] + 1
        return data[0][-1], data[1]

    return compiled(program)(counted(2))


@report("pytorch#196173", "attributes of objects that decide, and are changed in the function")
def attributes_that_decide(compiled: Compile) -> object:
    class State:
        def __init__(self) -> None:
            self.count, self.last = 0, None

    state = State()

    def program(x: torch.Tensor, s: State) -> torch.Tensor:
        s.count += 1
        s.last = x * s.count  # type: ignore[assignment]
        return x + 10 if s is state and s.count % 2 else x - s.count

    call = compiled(program)
    results = [call(counted(2), state), call(counted(2), state), call(counted(2), State())]
    return results, state.count, state.last


@report("pytorch#138980", "a graph module that was compiled is changed")
def traced_module_is_kept(compiled: Compile) -> object:
    traced = torch.fx.symbolic_trace(lambda x: x.relu() + 1)
    before = traced.code
    result = compiled(traced)(counted(3) - 1)
    return result, before == traced.code, traced(counted(3))


@report("", "prints, comparisons of values and calls out of the graph between two parts")
def broken_graphs(compiled: Compile) -> object:
    seen: list[float] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        y += 1
        seen.append(float(y.sum()))
        if y.sum() > 10:
            y = y.flip(0)
        z = y[1:]
        z *= 3
        return y + x

    call = compiled(program)
    x = counted(4)
    return call(x), call(x - 5), x, seen


@report("", "hooks, buffers and parameters of a module that are added, replaced and removed between calls")
def changing_module(compiled: Compile) -> object:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor(0))
            self.scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x * self.scale + self.count

    model = Model()
    call = compiled(model)
    x = counted(2)
    results = [call(x)]
    handle = model.register_forward_hook(lambda module, inputs, output: output * 100)
    results.append(call(x))
    handle.remove()
    model.scale = 0.5
    results.append(call(x))
    model.count = torch.tensor(10.5)
    results.append(call(x))
    return results, model.count


@report("", "exceptions that are caught, context managers, and try with finally")
def caught_exceptions(compiled: Compile) -> object:
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            if n > 1:
                raise ValueError("large")
            y = x + n
        except ValueError:
            y = x - n
        finally:
            x.add_(1)
        return y

    call = compiled(program)
    x = counted(3)
    return [call(x, n) for n in (0, 3, 1)], x


@report("pytorch#160730", "a branch on the mean of an expanded tangent")
def branch_on_a_mean(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> torch.Tensor:
        e = torch.tan(x).expand(3, 5, 2)
        out = e - e * 0.5 if torch.mean(e).item() > 0.5 else e + e * 0.5
        return torch.sin(out)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        call = compiled(program)
        return call(counted(3, 5, 1) / 16), call(-counted(3, 5, 1) / 16)
