"""What a transport's tail model says of a run: the median completion of its iterations, beside which worlds can be put.

An iteration is over when the slowest of its flows is, in both directions; they are taken as independent. A TCP's first
message finds a new connection, each later one what the messages before have left of it.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from bicoastal.emulation.base import JobSpec, RunSpec
from bicoastal.experiments.extrapolation.tails.model import Crossing, TailModel
from bicoastal.experiments.extrapolation.tails.models import model_of
from bicoastal.experiments.extrapolation.tails.slowest import Fleet
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.wan.loss import Bernoulli, LossSpec, NoLoss, TailOfBurst
from bicoastal.wan.topology import LinkSpec, Topology

DIRECTIONS = 2
ALMOST_SURE = 1 - 1e-9  # the last packet of each burst, as a probability below one
LEAST_QUEUE_BDP = 0.99  # of a queue that only slow start overflows
FARTHEST = 1 - 1e-6  # share of flows up to whose completion the median is sought
HALVINGS = 50


class NotModelledError(ValueError):
    """A run is of a kind that no model is for; the message is one sentence."""


def expected_median_s(spec: RunSpec) -> float:
    """Return the median completion of the iterations of a run's only job, seconds, as its transport's model has it.

    Raises NotModelledError for what the models leave out, NoModelError for a transport without one, ValueError for an
    unknown one.
    """
    if len(spec.jobs) != 1 or spec.background:
        raise NotModelledError("the models are of one job without other traffic")
    job = spec.jobs[0]
    model = model_of(job.transport.name)
    if job.transport.parameters:
        raise NotModelledError("the models are of transports as they are, without parameters of their own")
    if job.allreduce.trips != 1:
        raise NotModelledError("the models are of one trip after an idle time")
    link = _link(spec.topology, job)
    queue_bdp = link.queue_limit_bytes / link.bdp_bytes if link.delay_s else np.inf
    if queue_bdp < LEAST_QUEUE_BDP:
        raise NotModelledError(f"the models are of queues of at least a BDP, not of {queue_bdp:.2g}")
    if isinstance(model, Tcp):
        model = replace(model, queue_bdp=queue_bdp)
    fleet = Fleet(messages=DIRECTIONS, planes=len(job.paths))
    part = fleet.part(model, _crossing(spec.topology, job, link))
    kinds = _by_history(model, job.iterations)
    flows = fleet.flows(model)

    def share(at_s: float) -> float:
        return sum(weight * float(np.exp(flows * kind.log_cdf(part, at_s))) for weight, kind in kinds)

    low_s, high_s = float(part.bound_s()), max(float(kind.quantile_s(part, np.log(FARTHEST))) for _, kind in kinds)
    for _ in range(HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if share(middle_s) >= 0.5 else (middle_s, high_s)
    return high_s


def _by_history(model: TailModel, iterations: int) -> list[tuple[float, TailModel]]:
    """Return the models of iterations that differ in what the connection has carried, with their shares of all."""
    if not isinstance(model, Tcp):
        return [(1.0, model)]
    fresh = replace(model, settled=False)
    later = iterations - 1
    return [(1 / iterations, fresh), *([(later / iterations, replace(fresh, history=later))] if later else [])]


def _link(topology: Topology, job: JobSpec) -> LinkSpec:
    """Return the link that each of the job's paths consists of. Raises NotModelledError where they are not alike."""
    paths = [topology.paths[name] for name in job.paths]
    links = [topology.links[path.links[0]] for path in paths]
    alike = all(replace(one, name=other.name) == other for one, other in pairwise(links))
    if not alike or any(len(path.links) > 1 for path in paths) or len({path.overhead_bytes for path in paths}) > 1:
        raise NotModelledError("the models are of paths of one link each, all alike")
    link = links[0]
    if link.jitter_s or link.reorder or link.duplicate or link.corrupt or link.events:
        raise NotModelledError("the models know no jitter, reordering, duplicates, corruption, steps or outages")
    if link.loss_back not in (None, link.loss):
        raise NotModelledError("the models are of the same loss in both directions")
    return link


def _crossing(topology: Topology, job: JobSpec, link: LinkSpec) -> Crossing:
    loss, tail_loss = _loss(link.loss)
    return Crossing(
        payload_bytes=float(job.allreduce.shard_bytes),
        rate_bps=sum(topology.path_rate_bps(name) for name in job.paths),
        rtt_s=2 * link.delay_s,
        loss=loss,
        tail_loss=tail_loss,
        mtu_bytes=topology.path_mtu_bytes(job.paths[0]),
        framing_bytes=link.framing_bytes + topology.paths[job.paths[0]].overhead_bytes,
        idle_s=job.gap_s,
    )


def _loss(loss: LossSpec) -> tuple[float, float]:
    """Return the loss of any packet and that of a burst's last one."""
    match loss:
        case NoLoss():
            return 0.0, 0.0
        case Bernoulli():
            return loss.probability, 0.0
        case TailOfBurst(packets=1):
            return 0.0, ALMOST_SURE
    raise NotModelledError("the models are of packets lost independently, or of each burst's last one")
