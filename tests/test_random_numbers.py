"""Random numbers: ATen's under ``rng="eager"``, and numbers of the right distribution under ``rng="fast"``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch._aot_autograd import utils as aot_utils
from torch._subclasses import FakeTensorMode

import litz
from litz.cache.artifacts import ArtifactCache
from litz.compilation import Compilation
from litz.loading import Compiled

N = 20_000
RAND = torch.ops.aten.rand_like.default


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def compiled(program: Callable[..., Any], rng: str = "eager") -> Callable[..., Any]:
    """Compile the program by litz; a fallback of a graph is an error. Options hold from its first call on."""
    options: dict[str, Any] = {"fallback": "error", "rng": rng}
    run: Callable[..., Any] = torch.compile(program, backend="litz", fullgraph=True, options=options)
    return run


# --- rng = "eager" --------------------------------------------------------------------------------------------


def mixed(x: Tensor) -> tuple[Tensor, ...]:
    a = torch.rand(7) * 2
    b = F.dropout(x, 0.3) @ x.t()
    c = torch.randn_like(x) + torch.randint(0, 9, x.shape)
    d = torch.bernoulli(torch.sigmoid(x)) - torch.empty(3).uniform_(-1, 1).sum()
    e = torch.normal(x, 0.5), torch.empty(4).exponential_(2.0), torch.empty(4).geometric_(0.3)
    f = torch.multinomial(x[0].exp(), 3), torch.randperm(5), torch.poisson(x.exp())
    g = torch.empty(4).cauchy_(), torch.empty(4).log_normal_(), F.rrelu(x, training=True), F.rrelu(x)
    h = torch.binomial(x.abs().ceil(), torch.sigmoid(x)), torch.rand(2, 3, dtype=torch.bfloat16)
    return a, b, c, d, *e, *f, *g, *h, F.alpha_dropout(x, 0.2, training=True)


def test_all_families_take_atens_stream_in_program_order() -> None:
    x = torch.randn(4, 5)
    run = compiled(mixed)
    for seed in (3, 4):
        torch.manual_seed(seed)
        found = run(x)
        after = torch.rand(1)
        torch.manual_seed(seed)
        wanted = mixed(x)
        torch.testing.assert_close(found, wanted)
        assert torch.equal(after, torch.rand(1)), "as much of the stream is used as eager uses"


def test_a_generator_that_is_given_is_used() -> None:
    def program(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + torch.rand(4, generator=generator) + torch.rand(4)

    for rng in ("eager", "fast"):
        torch._dynamo.reset()
        with litz.config.patch(rng=rng):
            run = torch.compile(program, backend="litz")
            torch.manual_seed(0)
            found = run(torch.zeros(4), torch.Generator().manual_seed(3))
            other = run(torch.zeros(4), torch.Generator().manual_seed(3))
        wanted = torch.rand(4, generator=torch.Generator().manual_seed(3))
        if rng == "eager":
            torch.manual_seed(0)
            torch.testing.assert_close(found, wanted + torch.rand(4))
        assert not torch.equal(found, other), "the default stream goes on"


# --- rng = "fast" ---------------------------------------------------------------------------------------------


class Numbers:
    """Build a graph of random calls, as torch's partitioner does; 20 numbers each."""

    def __init__(self, generator: object = None) -> None:
        self.graph = torch.fx.Graph()
        with FakeTensorMode() as mode:
            self.fake = mode.from_tensor(torch.ones(4, 5))
            self.state = mode.from_tensor(torch.random.get_rng_state())
        self.x = self.graph.placeholder("x")
        self.x.meta["val"] = self.fake
        self.generator = self.graph.placeholder("generator")
        self.generator.meta["val"] = generator

    def call(self, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> torch.fx.Node:
        """Add a call with metadata."""
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = self.fake if value is None else value
        return node

    def compiled(self, *outputs: torch.fx.Node) -> tuple[torch.fx.GraphModule, Compiled]:
        """Return the graph and its compiled form; a fallback is an error."""
        self.graph.output(outputs)
        gm = torch.fx.GraphModule({}, self.graph)
        with litz.config.patch(fallback="error", cache=False) as config:
            return gm, Compilation(gm, "numbers", config, ArtifactCache.open(config)).run()


def test_a_saved_state_is_drawn_from_again() -> None:
    numbers, higher = Numbers(), torch.ops.higher_order
    before = numbers.call(RAND, numbers.x)
    pair = numbers.call(higher.run_and_save_rng_state, RAND, numbers.x, value=(numbers.state, numbers.fake))
    state = numbers.call(operator.getitem, pair, 0, value=numbers.state)
    saved = numbers.call(operator.getitem, pair, 1)
    between = numbers.call(RAND, numbers.x)
    again = numbers.graph.call_function(higher.run_with_rng_state, (state, RAND, numbers.x))
    gm, ours = numbers.compiled(before, saved, between, again, numbers.call(RAND, numbers.x))
    torch.manual_seed(7)
    wanted = gm(torch.ones(4, 5), None)
    torch.manual_seed(7)
    found = ours.call([torch.ones(4, 5), None])
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert torch.equal(found[1], found[3]) and len({float(a[0, 0]) for a in found}) == 4


class Exchanged:
    """A generator whose state may be replaced by another's, as on a GPU; CPU generators do not allow that."""

    def __init__(self) -> None:
        self.own = torch.default_generator

    def graphsafe_get_state(self) -> Tensor:
        """Return the state to restore later."""
        return self.own.get_state()

    def graphsafe_set_state(self, state: Tensor | torch.Generator) -> None:
        """Draw from ``state`` from now on."""
        self.own.set_state(state if isinstance(state, Tensor) else state.get_state())


@pytest.mark.skipif(not hasattr(aot_utils, "supports_graphsafe_rng"), reason="torch 2.12 has it")
def test_a_draw_from_a_generator_that_the_graph_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aot_utils, "supports_graphsafe_rng", lambda device: True)
    monkeypatch.setattr(torch.cpu, "default_generators", {None: Exchanged()}, raising=False)
    given = torch.Generator()
    numbers = Numbers(given)
    before = numbers.call(RAND, numbers.x)
    drawn = numbers.graph.call_function(
        torch.ops.higher_order.graphsafe_run_with_rng_state,
        (RAND, numbers.x),
        {"rng_state": numbers.generator},
    )
    more = numbers.call(torch.ops.aten.add.Tensor, drawn, 1)
    gm, ours = numbers.compiled(before, more, numbers.call(RAND, numbers.x))
    outcomes = []
    for run in (lambda x: gm(x, given), lambda x: ours.call([x, given])):
        torch.manual_seed(7)
        given.manual_seed(3)
        outcomes.append([*run(torch.ones(4, 5)), *run(torch.ones(4, 5))])
    assert all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
    given.manual_seed(3)
    assert torch.equal(outcomes[1][1], torch.rand(4, 5, generator=given) + 1)


def normal_law(x: Tensor) -> Tensor:
    return torch.special.ndtr(x)


CONTINUOUS: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
    "rand": (lambda: torch.rand(N), lambda x: x.clamp(0, 1)),
    "rand f64": (lambda: torch.rand(N, dtype=torch.float64), lambda x: x.clamp(0, 1)),
    "randn": (lambda: torch.randn(N), normal_law),
    "randn f64": (lambda: torch.randn(N, dtype=torch.float64), normal_law),
    "uniform": (lambda: torch.empty(N).uniform_(-2, 3), lambda x: ((x + 2) / 5).clamp(0, 1)),
    "normal": (lambda: torch.empty(N).normal_(1, 2), lambda x: normal_law((x - 1) / 2)),
    "normal of a mean": (lambda: torch.normal(torch.full((N,), 1.0), 2.0), lambda x: normal_law((x - 1) / 2)),
    "normal of a deviation": (
        lambda: torch.normal(1.0, torch.full((N,), 2.0)),
        lambda x: normal_law((x - 1) / 2),
    ),
    "log normal": (
        lambda: torch.empty(N).log_normal_(0.5, 0.25),
        lambda x: normal_law((x.log() - 0.5) / 0.25),
    ),
    "exponential": (lambda: torch.empty(N).exponential_(2.0), lambda x: -torch.expm1(-2 * x)),
    "cauchy": (lambda: torch.empty(N).cauchy_(1, 2), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
}

DISCRETE: dict[str, tuple[Callable[[], Tensor], dict[float, float]]] = {
    "randint": (lambda: torch.randint(3, 11, (N,)), {float(k): 1 / 8 for k in range(3, 11)}),
    "narrow randint": (
        lambda: torch.randint(5, (N,), dtype=torch.uint8),
        {float(k): 1 / 5 for k in range(5)},
    ),
    "bernoulli": (lambda: torch.empty(N).bernoulli_(0.3), {0.0: 0.7, 1.0: 0.3}),
    "bernoulli of chances": (lambda: torch.bernoulli(torch.full((N,), 0.6)), {0.0: 0.4, 1.0: 0.6}),
    "dropout": (lambda: F.dropout(torch.ones(N), 0.25), {0.0: 0.25, 1 / 0.75: 0.75}),
    "geometric": (
        lambda: torch.empty(N).geometric_(0.5).clamp(max=8),
        {**{float(k): 0.5**k for k in range(1, 8)}, 8.0: 0.5**7},
    ),
}


def drawn() -> dict[str, Tensor]:
    pairs: dict[str, tuple[Callable[[], Tensor], Any]] = {**CONTINUOUS, **DISCRETE}
    return {name: make() for name, (make, _) in pairs.items()}


@pytest.fixture(scope="module")
def samples() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return results of two calls of one program that draws from every family."""
    torch._dynamo.reset()
    run = compiled(drawn, "fast")
    torch.manual_seed(0)
    return run(), run()


def kolmogorov_smirnov(sample: Tensor, law: Callable[[Tensor], Tensor]) -> float:
    """Return the Kolmogorov-Smirnov statistic: the largest distance of the sample's distribution function from ``law``,
    times the root of its size."""
    ordered = law(sample.double().sort().values)
    steps = torch.arange(len(sample) + 1, dtype=torch.float64) / len(sample)
    apart = torch.maximum((ordered - steps[:-1]).abs().max(), (ordered - steps[1:]).abs().max())
    return apart.item() * math.sqrt(len(sample))


@pytest.mark.sampled
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_numbers_follow_their_law(name: str, samples: tuple[dict[str, Tensor], ...]) -> None:
    for sample in samples:
        assert kolmogorov_smirnov(sample[name], CONTINUOUS[name][1]) < 1.95, "once in a thousand samples"


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_numbers_follow_their_law(name: str, samples: tuple[dict[str, Tensor], ...]) -> None:
    law = DISCRETE[name][1]
    for sample in samples:
        values, counts = sample[name].double().unique(return_counts=True)
        assert values.tolist() == pytest.approx(sorted(law))
        expected = torch.tensor([law[key] * N for key in sorted(law)], dtype=torch.float64)
        freedom = len(law) - 1
        assert ((counts - expected) ** 2 / expected).sum() < freedom + 4 * math.sqrt(2 * freedom)


def test_elements_calls_and_streams_are_independent(samples: tuple[dict[str, Tensor], ...]) -> None:
    first, second = samples

    def related(a: Tensor, b: Tensor) -> float:
        return torch.corrcoef(torch.stack((a.double(), b.double())))[0, 1].abs().item() * math.sqrt(len(a))

    for name in ("rand", "randn", "exponential", "randint", "bernoulli"):
        for lag in (1, 2, 4, 8, 16, 1000):
            assert related(first[name][:-lag], first[name][lag:]) < 4, (name, lag)
        assert related(first[name], second[name]) < 4, name
    names = ("rand", "uniform", "randn", "normal", "randint", "exponential")
    for a in names:
        for b in names:
            assert a == b or related(first[a], first[b]) < 4, (a, b)


def test_narrow_uniform_numbers_stay_below_one() -> None:
    run = compiled(lambda: (torch.rand(N, dtype=torch.bfloat16), torch.rand(N, dtype=torch.float16)), "fast")
    torch.manual_seed(0)
    for sample in run():
        assert sample.min() >= 0 and sample.max() < 1 and abs(sample.double().mean() - 0.5) < 0.01


def test_a_seed_gives_the_same_numbers_on_any_number_of_threads() -> None:
    run = compiled(lambda: (torch.rand(300, 400), torch.randn(300, 400).exp()), "fast")
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 1):
            torch.set_num_threads(count)
            torch.manual_seed(11)
            found.append(run())
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    torch.manual_seed(12)
    assert not torch.equal(run()[0], found[0][0])


def test_the_backward_of_dropout_has_the_forwards_mask() -> None:
    run = compiled(lambda x: F.dropout(x, 0.25) * F.dropout(x, 0.5), "fast")
    x = torch.ones(5000, requires_grad=True)
    out = run(x)
    out.sum().backward()
    kept = out != 0
    assert abs(kept.double().mean() - 0.75 * 0.5) < 0.03
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (0.75 * 0.5)))
    # The derivative of x**2 at one is two, under the same masks.
    torch.testing.assert_close(x.grad, 2 * out)


def test_dropout_of_memory_with_gaps_draws_as_eager_does() -> None:
    program = lambda *tensors: [F.dropout(each, 0.4) for each in tensors]  # noqa: E731
    x = torch.rand(6, 4) + 1
    forms = (x[::2], x[::2].t(), x[:1].expand(3, 4), x.t(), x)
    torch.manual_seed(3)
    expected = program(*forms)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.compile(program, backend="litz")(*forms), expected, check_stride=True)


def test_rrelu_draws_slopes_between_its_bounds() -> None:
    run = compiled(lambda x: F.rrelu(x, 0.2, 0.6, training=True), "fast")
    x = torch.cat((-torch.ones(N), torch.ones(10)))
    torch.manual_seed(0)
    out = run(x)
    assert torch.equal(out[N:], x[N:])
    assert kolmogorov_smirnov(-out[:N], lambda s: ((s - 0.2) / 0.4).clamp(0, 1)) < 1.95
