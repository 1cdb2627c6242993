"""A whole deployment from closed forms: `extrapolate` gives its stages, `size` the bandwidth that hides them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bicoastal.experiments.extrapolation.all_transports import Sizing, size_measured
from bicoastal.experiments.extrapolation.all_transports import size as answer
from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.bandwidth_need import Path as WanPath
from bicoastal.experiments.extrapolation.bandwidth_need import Question, at
from bicoastal.experiments.extrapolation.computation import bubble_share
from bicoastal.experiments.extrapolation.exposure import (
    Pass,
    backward_pass,
    cover_s,
    exposed_gradient_s,
    exposed_share,
    forward_pass,
    step_s,
)
from bicoastal.experiments.extrapolation.memory import Memory, memory, verdict
from bicoastal.experiments.extrapolation.stages import (
    Stage,
    expert_stage,
    gradient_s,
    gradient_stages,
    pipeline_stage,
    tensor_stage,
    wide_area_s,
)
from bicoastal.experiments.extrapolation.tails.models import (
    MODELS,
    NO_TRANSPORT,
    WITHOUT_MODEL,
    model_of,
)
from bicoastal.experiments.extrapolation.tails.slowest import Scope
from bicoastal.experiments.extrapolation.wide_area import Change, WideArea, wide_area
from bicoastal.experiments.extrapolation.wide_area import changes as dependencies
from bicoastal.experiments.scenario.deployment import load_deployment as load_with
from bicoastal.experiments.scenario.overrides import Override
from bicoastal.experiments.scenario.tables import ScenarioError, close_matches
from bicoastal.interface.scenarios import Changes, overrides_of
from bicoastal.transports.registry import Registry
from bicoastal.wan.checks import FieldError
from bicoastal.wan.deployment import Deployment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_DEPLOYMENT = "hundred-trillion"
DEFAULT_LOSS = 1e-4
DEFAULT_SHARE = 0.99
SIZED_TRANSPORTS = (*(name for name in MODELS if name not in NO_TRANSPORT), *WITHOUT_MODEL)
"""The transports that `size` answers for where none is named; of some it says why it has no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """What follows for a deployment under some assumptions: memory, stages, what of them is exposed, the WAN rate.

    Times are seconds. wan: None where there is one site. changes: what the WAN rate depends on.
    """

    deployment: Deployment
    assumptions: Assumptions
    memory: Memory
    stages: tuple[Stage, ...]
    forward: Pass
    backward: Pass
    gradient_s: float
    cover_s: float
    gradient_exposed_s: float
    wan: WideArea | None
    changes: tuple[Change, ...]

    @property
    def layer_share(self) -> float:
        """Exposed share of a micro-batch in a pipeline stage, gradients apart."""
        return float(exposed_share(self.deployment, self.assumptions))

    @property
    def step_share(self) -> float:
        """Exposed share of a step without its bubble, gradients included."""
        d = self.deployment
        return float(exposed_share(d, self.assumptions, self.gradient_exposed_s, micro_batches=d.micro_batches))

    @property
    def bubble_share(self) -> float:
        """Part of a step in which a pipeline stage waits, on top of `step_s`."""
        return bubble_share(pipeline=self.deployment.pipeline, micro_batches=self.deployment.micro_batches)

    @property
    def step_s(self) -> float:
        """Time of a step without its bubble."""
        return float(step_s(self.deployment, self.assumptions, self.gradient_exposed_s))

    @property
    def memory_verdict(self) -> str:
        """Whether the model fits into a GPU's memory, in words."""
        return verdict(self.deployment)


def load_deployment(
    source: str | os.PathLike[str] = DEFAULT_DEPLOYMENT, *, changes: Changes = ()
) -> tuple[Deployment, Assumptions]:
    """Return a deployment and the assumptions under which it is looked at.

    source: the name of a bundled deployment (`list_deployments`) or the path of a TOML file. changes: values by key, of
    the deployment or of the assumptions: {"plant.wan_rtt": "20 ms", "assumptions.wan_trips": 1}. Raises ScenarioError,
    in one sentence that names the file or the change, and the key.
    """
    overrides = overrides_of(changes)
    assumed = [change for change in overrides if change.steps[0] == ("assumptions", None)]
    deployment = load_with(os.fspath(source), Path(), [change for change in overrides if change not in assumed])
    return deployment, _read_assumptions(assumed)


def _read_assumptions(overrides: Sequence[Override]) -> Assumptions:
    known = [field.name for field in fields(Assumptions)]
    values: dict[str, Any] = {}
    for change in overrides:
        if len(change.steps) != 2 or change.steps[1][1] is not None or change.key not in known:
            raise ScenarioError(
                f"{change.label}: there is no such assumption{close_matches(change.key, known)}; there are "
                f"{', '.join(known)}"
            )
        value = change.value
        values[change.key] = tuple(value) if isinstance(value, list) else value
    try:
        return Assumptions(**values)
    except FieldError as error:
        labels = {change.key: change.label for change in overrides}
        raise ScenarioError(f"{labels[error.field]}: {error.message}") from error


def extrapolate(
    deployment: Deployment | str | os.PathLike[str] = DEFAULT_DEPLOYMENT,
    *,
    changes: Changes = (),
    assumptions: Assumptions | None = None,
) -> Extrapolation:
    """Return the stages of a deployment, what of them computation hides, and what the WAN has to carry.

    The transport is an ideal one. A deployment without a WAN rate counts as one with an unlimited rate. deployment: a
    Deployment, or what `load_deployment` takes, with its changes. assumptions: in place of those of the changes.
    """
    return _extrapolate(*_case(deployment, changes, assumptions))


def _extrapolate(deployment: Deployment, assumptions: Assumptions) -> Extrapolation:
    rate_bps = deployment.wan_bps
    latency_s, busy_s = wide_area_s(deployment, assumptions, float("inf") if rate_bps is None else rate_bps)
    of_pass = (
        tensor_stage(deployment, assumptions),
        expert_stage(deployment, assumptions),
        pipeline_stage(deployment, assumptions),
    )
    return Extrapolation(
        deployment=deployment,
        assumptions=assumptions,
        memory=memory(deployment),
        stages=(
            *(stage for stage in of_pass if stage is not None),
            *gradient_stages(deployment, assumptions, rate_bps),
        ),
        forward=forward_pass(deployment, assumptions),
        backward=backward_pass(deployment, assumptions),
        gradient_s=float(gradient_s(deployment, assumptions, latency_s, busy_s)),
        cover_s=cover_s(deployment, assumptions),
        gradient_exposed_s=float(exposed_gradient_s(deployment, assumptions, latency_s, busy_s)),
        wan=wide_area(deployment, assumptions),
        changes=dependencies(deployment, assumptions),
    )


def size(
    deployment: Deployment | str | os.PathLike[str] = DEFAULT_DEPLOYMENT,
    *,
    changes: Changes = (),
    assumptions: Assumptions | None = None,
    transports: Sequence[str] | None = None,
    loss: float = DEFAULT_LOSS,
    tail_loss: float = 0.0,
    target: float | None = None,
    scope: Scope = "step",
    share: float = DEFAULT_SHARE,
    results: str | os.PathLike[str] | None = None,
) -> Sizing:
    """Return, for each transport, the least WAN rate per GPU that hides the gradient all-reduce.

    The slowest of all messages decides. deployment, changes, assumptions: as in `extrapolate`. loss: per packet;
    tail_loss: of each message's last packet, besides. target: the exposed share of a step that is allowed; None: that
    of a step whose gradients are all hidden. scope: wait for the messages of the whole "step", or of one "layer".
    share: of the steps that meet the target. results: a directory of results whose runs tell the loss, in place of
    `loss`. Raises ScenarioError or ValueError in one sentence, and StoreError for a directory without results.
    """
    found, assumed = _case(deployment, changes, assumptions)
    question = Question(
        deployment=found,
        assumptions=assumed,
        path=WanPath(loss=loss, tail_loss=tail_loss),
        scope=scope,
        share=share,
    )
    for name in transports or ():
        if name not in WITHOUT_MODEL:
            model_of(name)
    if results is None:
        return answer(question, SIZED_TRANSPORTS if transports is None else transports, target)
    return size_measured(question, Path(results), transports, target)


def exposed_figure(sizing: Sizing) -> "Figure | None":
    """Return what each transport leaves exposed, against rate, round-trip time and loss; None where none has a figure.

    As of every figure: it is returned, and neither shown nor written.
    """
    from bicoastal.experiments.figures import exposed_share  # noqa: PLC0415 (matplotlib is slow to import)

    models, question = _drawn(sizing)
    return exposed_share.exposed_figure(question, models, sizing.target, Registry.installed()) if models else None


def stages_figure(sizing: Sizing) -> "Figure | None":
    """Return the stages of the gradient all-reduce end to end with each transport; None where none has a figure."""
    from bicoastal.experiments.figures import exposed_share  # noqa: PLC0415 (as above)

    models, question = _drawn(sizing)
    return exposed_share.stages_figure(question, models) if models else None


def _drawn(sizing: Sizing) -> tuple[list[Any], Question]:
    models = [model_of(row.transport) for row in sizing.rows if row.found is not None]
    losses = [row.measured.loss for row in sizing.rows if row.measured]
    return models, at(sizing.question, loss=max(losses)) if losses else sizing.question


def _case(
    deployment: Deployment | str | os.PathLike[str], changes: Changes, assumptions: Assumptions | None
) -> tuple[Deployment, Assumptions]:
    if isinstance(deployment, Deployment):
        if changes:
            raise ScenarioError("changes: are for a deployment that is loaded; this one is an object already")
        return deployment, assumptions or Assumptions()
    loaded, assumed = load_deployment(deployment, changes=changes)
    return loaded, assumptions or assumed
