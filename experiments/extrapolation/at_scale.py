"""The step of a whole deployment, from the measured messages of one GPU pair: the step waits for all pairs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bicoastal.experiments.analysis.comparison import Comparison
from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.exposure import exposed_gradient_s
from bicoastal.experiments.extrapolation.fitting.evidence import evidence
from bicoastal.experiments.extrapolation.fitting.loss_fit import fit, slowest_span
from bicoastal.experiments.extrapolation.fitting.messages import measure
from bicoastal.experiments.extrapolation.tails.models import model_of
from bicoastal.experiments.runs.store import Store
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class AtScale:
    """One transport's whole step: the median of its slowest message of `messages`, seconds.

    completion_s: of the wide-area phase with all its trips, each of which waits for its slowest message. Losses are
    independent, and it is not a connection's first iteration. low, high: at the ends of the loss's 95 % interval.
    correlated: the least for any dependence, where all messages lose the same packets. any: the most for any
    dependence. exposed_s: the part of the gradient all-reduce that computation does not hide then. evidence: what the
    loss rests on, and what independence means, in words.
    """

    messages: int
    completion_s: float
    completion_low_s: float
    completion_high_s: float
    completion_correlated_s: float
    completion_any_s: float
    exposed_s: float
    evidence: str

    def document(self) -> dict[str, Any]:
        """Return what `compare --json` shows: the figures, what they rest on, and what was assumed of losses."""
        return {**asdict(self), "losses": "independent"}


def at_scale(
    store: Store, comparison: Comparison, deployment: Deployment, *, trips: int
) -> tuple[Mapping[str, AtScale], Mapping[str, str]]:
    """Return the step of the whole deployment by transport, and for the other transports the reason why there is none.

    The path is the one that was measured, at full rate. trips: one-way trips of an iteration.
    """
    found: dict[str, AtScale] = {}
    refused: dict[str, str] = {}
    for result in comparison.transports:
        if result.status not in ("ok", "degraded"):
            continue
        try:
            model = model_of(result.name)
            fitted = fit(measure(store, result), model)
            span = slowest_span(fitted, deployment.messages_per_step, trips=trips)
        except ValueError as error:  # no model, or too few runs
            refused[result.name] = str(error)
            continue
        middle_s, low_s, high_s, correlated_s, any_s = (trips * time_s for time_s in span)
        exposed_s = float(exposed_gradient_s(deployment, Assumptions(wan_trips=trips), middle_s))
        found[result.name] = AtScale(
            messages=deployment.messages_per_step,
            completion_s=middle_s,
            completion_low_s=low_s,
            completion_high_s=high_s,
            completion_correlated_s=correlated_s,
            completion_any_s=any_s,
            exposed_s=exposed_s,
            evidence=f"{evidence(fitted)}; losses are taken to be independent: where all messages lose the same "
            f"packets, the slowest takes {format_time(correlated_s)}, and whatever depends on what, at most "
            f"{format_time(any_s)}",
        )
    return found, refused
