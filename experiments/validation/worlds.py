"""One scaled scenario in several worlds, side by side: do the simulator, real packets and the kernel agree?

A transport of ours runs in virtual time and over real sockets; where the kernel has the same algorithm, its own
implementation runs on the same links. What is compared is the median completion of an iteration, over several seeds
where packets are lost by chance: one loss less, or a few packets sooner, moves the median of a single run by a third.
Beside them stands, where there is one for the case, what the model of the transport's tail says of that median.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from bicoastal.emulation.base import Backend, RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.limits.scaled import scaled_run
from bicoastal.emulation.records import Status
from bicoastal.emulation.registry import BackendRegistry, UnknownBackendError
from bicoastal.emulation.traffic.ledger import iteration_bound_s
from bicoastal.experiments.extrapolation.tails.expected import NotModelledError, expected_median_s
from bicoastal.experiments.extrapolation.tails.models import NoModelError
from bicoastal.experiments.runs.scale import fitting_divisor, parse_divisor
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import Scenario, load_scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.loss import Bernoulli

WORLD_TOLERANCE = 0.10
DEFAULT_WORLD_ITERATIONS, DEFAULT_WORLD_SEEDS = 20, 10
_WORSE = ("ok", "degraded", "failed")
ANALYTIC = "analytic"
KERNEL = {"reno": "kernel-reno", "cubic": "kernel-cubic"}
# Twice an RTO of 260 to 350 ms is below the gap, three times it above: every world halves idle windows as often.
_GAP = "scenario.gap=700 ms"
# Connections have long been greeted when the first burst comes: an acknowledgement in its midst alters its slow start.
_COMMON = (_GAP, "allreduce.start=500 ms", "scenario.sample_interval=1 h")
_ONE_PLANE = ("links.count=1", *_COMMON)
STANDARD: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("lossless", "lossless", _ONE_PLANE),
    ("loss 1e-4", "coast-to-coast", (*_ONE_PLANE, "links.loss=1e-4")),
    ("loss 1e-3", "coast-to-coast", (*_ONE_PLANE, "links.loss=1e-3")),
    ("shallow queue", "shallow-queue", _COMMON),
    ("tail loss", "tail-loss", _ONE_PLANE),
)
"""The five scenarios of the comparison: a name, a bundled scenario, and what is changed in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is compared. scale: what rates and payloads are divided by; seeds: how many runs make one figure."""

    name: str
    scenario: Scenario
    scale: float
    seeds: int = 1

    def specs(self, carrier: str) -> Iterator[RunSpec]:
        """Give the runs of one transport, one for each seed."""
        for seed in self.scenario.seeds(self.seeds):
            yield scaled_run(self.scenario.run_spec(carrier, seed=seed, sampled=False), self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCell:
    """A transport in a world: its median completion (seconds; None where it did not run), and how it went.

    n: the iterations that it is the median of, none where it is a model's.
    """

    world: str
    transport: str
    median_s: float | None
    n: int
    status: Status | str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRow:
    """One scenario and one transport in every world. scale: what rates and payloads were divided by."""

    scenario: str
    transport: str
    scale: float
    bound_s: float
    cells: tuple[WorldCell, ...]

    @property
    def disagreement(self) -> float | None:
        """The largest median over the smallest, minus one; None with fewer than two worlds."""
        medians = [cell.median_s for cell in self.cells if cell.median_s is not None]
        return max(medians) / min(medians) - 1.0 if len(medians) > 1 else None


Tell = Callable[[str], None]


class ComparedWorld(Protocol):
    """Where cases are run, or reckoned."""

    @property
    def name(self) -> str:
        """Return the name of its column."""

    def carriers(self, transport: str) -> Sequence[str]:
        """Return the transports that stand for one: itself, and its twin in the kernel."""

    def cell(self, carrier: str, case: Case) -> WorldCell:
        """Return what a transport does in a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A backend's world."""

    name: str
    backend: Backend

    def carriers(self, transport: str) -> Sequence[str]:
        """Return the transport, and the kernel's implementation of it where packets are real."""
        real_time = self.backend.capabilities().real_time
        return (transport, *([KERNEL[transport]] if real_time and transport in KERNEL else []))

    def cell(self, carrier: str, case: Case) -> WorldCell:
        """Return the median over all seeds. A cell is as good as the worst of its runs."""
        done: list[float] = []
        status: Status | str = "ok"
        reason = ""
        for spec in case.specs(carrier):
            try:
                record = self.backend.run(spec)
            except (UnsupportedError, RunFailedError) as error:
                done, status, reason = [], "failed", str(error)
                if isinstance(error, UnsupportedError):
                    status = "unsupported"
                break
            done += [row.completion_s for row in record.iterations if row.completion_s is not None]
            if _WORSE.index(record.status) > _WORSE.index(status):
                status, reason = record.status, record.reason
        middle_s = median(done) if done else None
        return WorldCell(
            world=self.name, transport=carrier, median_s=middle_s, n=len(done), status=status, reason=reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analytic:
    """The world of closed forms: what the models of the transports' tails say."""

    name: str = ANALYTIC

    def carriers(self, transport: str) -> Sequence[str]:
        """Return the transport alone."""
        return (transport,)

    def cell(self, carrier: str, case: Case) -> WorldCell:
        """Return the model's median, or why there is none."""
        middle_s, status, reason = None, "ok", ""
        try:
            middle_s = expected_median_s(next(case.specs(carrier)))
        except (NoModelError, NotModelledError) as error:
            status, reason = "unsupported", str(error)
        return WorldCell(world=self.name, transport=carrier, median_s=middle_s, n=0, status=status, reason=reason)


def compare_worlds(
    cases: Sequence[Case], transports: Sequence[str], worlds: Sequence[ComparedWorld], *, tell: Tell
) -> list[WorldRow]:
    """Run every case and transport in every world, one after another, and return the rows.

    The first iteration, in which nothing has been learned yet, counts like any other. tell: hears of each cell before
    its runs begin.
    """
    rows = []
    for case in cases:
        for transport in transports:
            cells: list[WorldCell] = []
            for world in worlds:
                for carrier in world.carriers(transport):
                    tell(f"{case.name}: {carrier} in {world.name}")
                    cells.append(world.cell(carrier, case))
            spec = next(case.specs(transport))
            bound_s = max(iteration_bound_s(job, spec.topology) for job in spec.jobs)
            rows.append(
                WorldRow(scenario=case.name, transport=transport, scale=case.scale, bound_s=bound_s, cells=tuple(cells))
            )
    return rows


def standard_cases(registry: Registry, iterations: int) -> list[tuple[str, Scenario]]:
    """Return the five scenarios, each with so many iterations."""
    return [
        (
            name,
            load_scenario(
                source, registry, [parse_override(text) for text in (*changes, f"scenario.iterations={iterations}")]
            ),
        )
        for name, source, changes in STANDARD
    ]


def _by_chance(scenario: Scenario) -> bool:
    """Tell whether any link loses packets at random."""
    links = scenario.topology.links.values()
    return any(isinstance(loss, Bernoulli) for link in links for loss in (link.loss, link.loss_back))


def _ignore(_line: str) -> None:
    """Say nothing of a cell that begins."""


def measure_worlds(
    *,
    worlds: Sequence[str] = ("sim", "netns", ANALYTIC),
    transports: Sequence[str] = ("reno", "cubic", "adaptive"),
    cases: Sequence[str] | None = None,
    iterations: int = DEFAULT_WORLD_ITERATIONS,
    seeds: int = DEFAULT_WORLD_SEEDS,
    scale: str | float = "auto",
    tell: Tell = _ignore,
) -> list[WorldRow]:
    """Run the standard scenarios in several worlds and return a row for each scenario and transport.

    worlds: backends, or "analytic". cases: names of `STANDARD` (default: all). iterations: of each run. seeds: runs of
    each case in which packets are lost by chance. scale: what rates and payloads are divided by, or "auto". tell: is
    called with a line before each cell. Raises ScenarioError in one sentence that begins with the argument.
    """
    registry, installed = Registry.installed(), BackendRegistry.installed()
    for name, given, most in (("iterations", iterations, 100_000), ("seeds", seeds, 1000)):
        if not 1 <= given <= most:
            raise ScenarioError(f"{name}: {given} is not between 1 and {most}")
    for transport in transports:
        try:
            registry.resolve(transport)
        except UnknownTransportError as error:
            raise ScenarioError(f"transport: {error}") from error
    compared: list[ComparedWorld] = []
    for world in worlds:
        try:
            compared.append(
                Analytic() if world == ANALYTIC else Run(name=world, backend=installed.resolve(world)(registry))
            )
        except UnknownBackendError as error:
            raise ScenarioError(f"world: {error}, and {ANALYTIC}") from error
    divisor = parse_divisor(str(scale))
    known = [name for name, *_ in STANDARD]
    for case in cases or ():
        if case not in known:
            raise ScenarioError(f"case: {case!r} is none of {', '.join(known)}")
    planned = []
    for name, scenario in standard_cases(registry, iterations):
        if cases is not None and name not in cases:
            continue
        backends = [each.backend for each in compared if isinstance(each, Run)]
        fitting = divisor or max([fitting_divisor(backend, scenario, transports) for backend in backends], default=1.0)
        planned.append(Case(name=name, scenario=scenario, scale=fitting, seeds=seeds if _by_chance(scenario) else 1))
    return compare_worlds(planned, transports, compared, tell=tell)
