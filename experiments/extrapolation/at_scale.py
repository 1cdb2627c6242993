"""From a comparison to the deployment that it stands for: one pair's messages are measured, a step waits for all."""

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.compare import Comparison
from experiments.extrapolation.assumptions import Assumptions
from experiments.extrapolation.evidence import evidence
from experiments.extrapolation.exposure import exposed_gradient_s
from experiments.extrapolation.fit import fit, slowest_interval_s
from experiments.extrapolation.measured import measure
from experiments.extrapolation.tails_models import model_of
from experiments.store import Store
from wan.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class AtScale:
    """One transport's whole step: the slowest of `messages`, of half of the steps, seconds.

    completion_s: of the wide-area phase, all its trips, each of which waits for its slowest message; low, high: at the
    ends of the loss's 95 % interval. exposed_s: what of the gradient all-reduce computation does not hide then.
    evidence: what that loss rests on, in words.
    """

    messages: int
    completion_s: float
    completion_low_s: float
    completion_high_s: float
    exposed_s: float
    evidence: str

    def document(self) -> dict[str, float]:
        """Return the figures, as `compare --json` shows them."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "evidence"}


def at_scale(
    store: Store, comparison: Comparison, deployment: Deployment, *, trips: int
) -> tuple[Mapping[str, AtScale], Mapping[str, str]]:
    """Return, by transport, the step of the whole deployment, and for the others why their runs do not support it.

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
            times_s = slowest_interval_s(fitted, deployment.messages_per_step)
        except ValueError as error:  # no model, or too few runs
            refused[result.name] = str(error)
            continue
        middle_s, low_s, high_s = (trips * time_s for time_s in times_s)
        exposed_s = float(exposed_gradient_s(deployment, Assumptions(wan_trips=trips), middle_s))
        found[result.name] = AtScale(
            messages=deployment.messages_per_step,
            completion_s=middle_s,
            completion_low_s=low_s,
            completion_high_s=high_s,
            exposed_s=exposed_s,
            evidence=evidence(fitted),
        )
    return found, refused
