"""The WAN rate that each of several transports needs, at a loss that is given or that its runs show."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bicoastal.experiments.analysis.comparison import compare_runs
from bicoastal.experiments.extrapolation.bandwidth_need import Need, Question, at, need
from bicoastal.experiments.extrapolation.fitting.loss_fit import Fit, fit
from bicoastal.experiments.extrapolation.fitting.messages import TooFewError, measure
from bicoastal.experiments.extrapolation.tails.models import MODELS, SAME_ALGORITHM, NoModelError, model_of
from bicoastal.experiments.runs.store import Store
from bicoastal.experiments.scenario.tables import ScenarioError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingRow:
    """One transport's answer. measured: None where the loss was given. low, high: at the ends of its interval.

    found: None where the measurements support nothing; `refused` says why.
    """

    transport: str
    found: Need | None
    refused: str = ""
    measured: Fit | None = None
    low: Need | None = None
    high: Need | None = None

    @property
    def least_bps(self) -> tuple[float | None, float | None]:
        """What it needs at both ends of the interval; None where no bandwidth suffices."""
        low, high = (None if end is None else end.least_bps for end in (self.low, self.high))
        return low, high

    @property
    def exposed_s(self) -> tuple[float | None, float | None]:
        """What it leaves exposed at the deployment's own rate, at both ends."""
        low, high = (None if end is None else end.exposed_s for end in (self.low, self.high))
        return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The needs of all transports for one question. of_runs: the losses were measured, not given.

    setups: the number of set-ups of the runs, where each transport's runs are of one.
    """

    question: Question
    target: float | None
    rows: tuple[SizingRow, ...]
    of_runs: bool = False
    setups: int = 1

    @property
    def dearest_bps(self) -> float | None:
        """The largest cross-country capacity that one of the transports needs; no rate is enough for the others."""
        return max(
            (row.found.aggregate_bps for row in self.rows if row.found and row.found.aggregate_bps), default=None
        )


def size(question: Question, names: Sequence[str], target: float | None) -> Sizing:
    """Answer the question for transports on a path whose loss is given. Raises ValueError for an unknown one."""
    rows = []
    for name in names:
        try:
            rows.append(SizingRow(transport=name, found=need(question, model_of(name), target)))
        except NoModelError as error:
            rows.append(SizingRow(transport=name, found=None, refused=str(error)))
    return Sizing(question=question, target=target, rows=tuple(rows))


def size_measured(question: Question, directory: Path, names: Sequence[str] | None, target: float | None) -> Sizing:
    """Answer the question with the loss that each transport's results in a directory show.

    Raises StoreError where there are none, ScenarioError for a transport that is not among them.
    """
    rows = []
    with Store.existing(directory) as store:
        runs = store.runs()
        if not runs:
            raise ScenarioError(f"--from {directory}: holds no runs")
        if len({(run.scenario, run.backend) for run in runs}) > 1:
            raise ScenarioError(
                f"--from {directory}: holds runs of several scenarios or backends; give one's directory"
            )
        results = {result.name: result for result in compare_runs(store, runs).transports}
        for name in names or sorted(results, key=_place):
            if name not in results:
                raise ScenarioError(
                    f"--transport: {shown(name)} is not among the results; there are {', '.join(results)}"
                )
            try:
                model = model_of(name)
                fitted = fit(measure(store, results[name]), model)
            except (TooFewError, ValueError) as error:
                rows.append(SizingRow(transport=name, found=None, refused=str(error)))
                continue
            rows.append(_measured_row(question, fitted, target))
    return Sizing(
        question=question,
        target=target,
        rows=tuple(rows),
        of_runs=True,
        setups=len({run.setup for run in runs if names is None or run.transport in names}),
    )


def _place(name: str) -> tuple[int, str]:
    """Return where a transport stands in the table: models in their order, and after them what has none."""
    model = SAME_ALGORITHM[name].name if name in SAME_ALGORITHM else name
    return (list(MODELS).index(model) if model in MODELS else len(MODELS), name)


def _measured_row(question: Question, fitted: Fit, target: float | None) -> SizingRow:
    name = fitted.measured.transport
    if fitted.reason:
        return SizingRow(transport=name, found=None, refused=fitted.reason, measured=fitted)
    found, low, high = (
        need(at(question, loss=loss), fitted.model, target) for loss in (fitted.loss, fitted.loss_low, fitted.loss_high)
    )
    return SizingRow(transport=name, found=found, measured=fitted, low=low, high=high)
