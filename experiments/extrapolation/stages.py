"""The time of each stage of training's communication: tensor, expert, pipeline, and the hierarchical all-reduce.

Tensor and pipeline parallelism: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", arXiv 2104.04473. Experts: Rajbhandari et al., "DeepSpeed-MoE", arXiv 2201.05596. The five stages of the
gradients: "I've Got 99 Problems But FLOPS Ain't One", arXiv 2407.12819. What these papers leave open is a field of
`Assumptions`; the bytes of a number are a field of the deployment's `Precision`.

Functions of the WAN's rate and delay take arrays as well as numbers, and broadcast them as numpy does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.wan.collectives import LocalStage
from bicoastal.wan.deployment import Deployment

Values = float | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of the stage table.

    each: how often it happens, once for each "layer and pass", "pass" (forward or backward, of one micro-batch) or
    "step". network: the one that carries it. sent_bytes: by each GPU. time_s: from its beginning to its end. busy_s:
    the part of it in which the network is busy; the rest is latency. formula: in the symbols of the docstring of the
    function that makes the row.
    """

    name: str
    each: str
    network: str
    ranks: int
    sent_bytes: float
    time_s: float
    busy_s: float
    formula: str


def tensor_stage(deployment: Deployment, assumptions: Assumptions) -> Stage:
    """Return the all-reduces of one layer and pass: after attention, and after the feed-forward network.

    Each is over t ranks and b s h elements; with experts, the second is over the k copies that each token has in them.
    A reduce-scatter and an all-gather in its place (sequence parallelism) move the same bytes.
    """
    model, t = deployment.model, deployment.tensor
    one = LocalStage(
        name="tensor",
        collective="all-reduce",
        ranks=t,
        volume_bytes=deployment.micro_batch * model.sequence * model.hidden * deployment.precision.tensor_activations,
        rate_Bps=deployment.scale_up_Bps,
        latency_s=deployment.scale_up_latency_s,
        in_network="tensor" in assumptions.in_network,
    )
    volumes = 1 + model.experts_per_token
    busy_s = volumes * one.sent_bytes / one.rate_Bps
    share = "" if one.in_network else "2 (t-1)/t "
    return Stage(
        name="tensor parallel",
        each="layer and pass",
        network="scale-up",
        ranks=t,
        sent_bytes=volumes * one.sent_bytes,
        time_s=busy_s + 2 * one.latency_total_s,
        busy_s=busy_s,
        formula=f"(1+k) {share}b s h B_t / scale-up",
    )


def pipeline_stage(deployment: Deployment, assumptions: Assumptions) -> Stage:
    """Return the hand-over of b s h / t activations (or their gradients) between two pipeline stages, in one pass."""
    del assumptions  # leaves nothing open here
    model, precision = deployment.model, deployment.precision
    elements = deployment.micro_batch * model.sequence * model.hidden / deployment.tensor
    sent_bytes = elements * precision.pipeline_activations if deployment.pipeline > 1 else 0.0
    busy_s = 8 * sent_bytes / deployment.scale_out_bps
    return Stage(
        name="pipeline parallel",
        each="pass",
        network="scale-out",
        ranks=deployment.pipeline,
        sent_bytes=sent_bytes,
        time_s=busy_s + (deployment.scale_out_latency_s if sent_bytes else 0.0),
        busy_s=busy_s,
        formula="b s h/t B_p / scale-out",
    )


def expert_stage(deployment: Deployment, assumptions: Assumptions) -> Stage | None:
    """Return the two all-to-alls of one layer and pass: tokens to their experts and back. None without experts.

    Each GPU sends its k b s h / t token copies evenly to the e replicas that share the experts. Those in its own rack
    are reached by scale-up, the others by scale-out; the two networks work at the same time, and the slower counts.
    """
    del assumptions  # leaves nothing open here
    model, e = deployment.model, deployment.expert
    if model.experts == 1:
        return None
    copies = model.experts_per_token * deployment.micro_batch * model.sequence * model.hidden / deployment.tensor
    volume_bytes = copies * deployment.precision.expert_activations
    near = min(e, deployment.replicas_per_rack)
    inside, outside = 2 * (near - 1) / e * volume_bytes, 2 * (e - near) / e * volume_bytes
    busy = {
        "scale-up": (inside / deployment.scale_up_Bps, 2 * (near - 1) * deployment.scale_up_latency_s),
        "scale-out": (8 * outside / deployment.scale_out_bps, 2 * (e - near) * deployment.scale_out_latency_s),
    }
    network = max(busy, key=lambda name: sum(busy[name]))
    return Stage(
        name="expert parallel",
        each="layer and pass",
        network=network,
        ranks=e,
        sent_bytes=inside + outside,
        time_s=sum(busy[network]),
        busy_s=busy[network][0],
        formula=f"2 {'(e-r)/e' if network == 'scale-out' else '(e-1)/e'} k b s h/t B_e / {network}",
    )


def local_stages(deployment: Deployment, assumptions: Assumptions) -> tuple[LocalStage, ...]:
    """Return the deployment's stages inside a site, as the assumptions have them."""
    changed = []
    for stage in deployment.local_stages:
        collective = assumptions.local_reduction if stage.collective == "all-reduce" else stage.collective
        in_network = any(where in stage.name for where in assumptions.in_network)
        changed.append(replace(stage, collective=collective, in_network=in_network))
    return tuple(changed)


def wide_area_s(
    deployment: Deployment, assumptions: Assumptions, rate_bps: Values, rtt_s: Values | None = None
) -> tuple[Values, Values]:
    """Return (latency_s, busy_s) of the wide-area stage, for a transport that loses no time.

    rate_bps: of one GPU across the WAN; rtt_s: by default the deployment's. Each trip takes half a round trip and,
    with serialisation, its bytes over the rate; both zero where there is one site.
    """
    if deployment.sites == 1:
        return 0.0, 0.0
    rtt_s = deployment.wan_rtt_s if rtt_s is None else rtt_s
    latency_s = assumptions.wan_trips * rtt_s / 2
    sent_bytes = deployment.wide_area_bytes(assumptions.wan_trips) if assumptions.wan_serialisation else 0.0
    return latency_s, 8 * sent_bytes / rate_bps


def gradient_s(
    deployment: Deployment, assumptions: Assumptions, wide_area_latency_s: Values, wide_area_busy_s: Values = 0.0
) -> Values:
    """Return the time of the whole hierarchical all-reduce, given its wide-area stage; see `gradient_lines`.

    Without chunks it does not matter how the wide-area stage divides into latency and busy time: all that a transport
    was measured or predicted to take can be the latency.
    """
    lines = gradient_lines(deployment, assumptions)
    times = [line.constant_s + line.latency * wide_area_latency_s + line.busy * wide_area_busy_s for line in lines]
    whole_s = times[0]
    for time_s in times[1:]:
        whole_s = np.maximum(whole_s, time_s)
    return whole_s


class Line(NamedTuple):
    """A time that grows in proportion: constant_s + latency * (the WAN's latency) + busy * (the WAN's busy time)."""

    constant_s: float
    latency: float
    busy: float


def gradient_lines(deployment: Deployment, assumptions: Assumptions) -> list[Line]:
    """Return lines of which the largest is the time of the whole hierarchical all-reduce.

    Without chunks the stages follow one another, and there is one line, the sum of all. With c chunks each network
    serves one chunk at a time, and the time is the largest of these lower bounds, which the better of two orders of
    service reaches, or misses by a few per cent: a chunk passes every stage, and one of the stages is busy with all c;
    a network is busy with all its stages of all chunks, after the first chunk has come to it and before the last one
    has gone through the rest (machine-based bounds of a re-entrant flow shop; Pinedo, "Scheduling", ch. 6).
    """
    local = [
        (_network_of(stage), Line(stage.latency_total_s, 0, 0), Line(stage.sent_bytes / stage.rate_Bps, 0, 0))
        for stage in local_stages(deployment, assumptions)
    ]
    wide_area = [("WAN", Line(0.0, 1, 0), Line(0.0, 0, 1))] if deployment.sites == 2 else []
    stages = local[: len(local) // 2] + wide_area + local[len(local) // 2 :]  # as many come before it as after
    chunks = assumptions.chunks
    one_chunk = _sum([*(latency for _, latency, _ in stages), *(_part(busy, 1 / chunks) for _, _, busy in stages)])
    if chunks == 1:
        return [one_chunk]
    lines = [_sum([one_chunk, _part(busy, 1 - 1 / chunks)]) for _, _, busy in stages]
    for network in dict.fromkeys(name for name, _, _ in stages):
        visits = [index for index, (name, _, _) in enumerate(stages) if name == network]
        outside = stages[: visits[0]] + stages[visits[-1] + 1 :]
        lines.append(
            _sum(
                [
                    *(latency for _, latency, _ in outside),
                    *(_part(busy, 1 / chunks) for _, _, busy in outside),
                    *(stages[index][2] for index in visits),
                    stages[visits[-1]][1],
                ]
            )
        )
    return lines


def _part(line: Line, share: float) -> Line:
    return Line(line.constant_s * share, line.latency * share, line.busy * share)


def _sum(lines: Iterable[Line]) -> Line:
    return Line(*(sum(column) for column in zip(*lines, strict=True)))


def _network_of(stage: LocalStage) -> str:
    return "scale-up" if "rack" in stage.name else "scale-out"


def gradient_stages(deployment: Deployment, assumptions: Assumptions, rate_bps: float | None = None) -> list[Stage]:
    """Return the stages of the hierarchical all-reduce in their order, the wide-area one third.

    rate_bps: of one GPU across the WAN; None leaves serialisation there out.
    """
    rows = [_local_row(stage) for stage in local_stages(deployment, assumptions)]
    if deployment.sites == 2:
        latency_s, busy_s = wide_area_s(deployment, assumptions, np.inf if rate_bps is None else rate_bps)
        trips, counted = assumptions.wan_trips, assumptions.wan_serialisation and rate_bps is not None
        rows.insert(
            len(rows) // 2,
            Stage(
                name="3 wide area",
                each="step",
                network="WAN",
                ranks=2,
                sent_bytes=deployment.wide_area_bytes(trips),
                time_s=float(latency_s + busy_s),
                busy_s=float(busy_s),
                formula=f"{'RTT' if trips == 2 else 'RTT/2'}{' + G/(r n) / WAN' if counted else ''}",
            ),
        )
    return rows


def _local_row(stage: LocalStage) -> Stage:
    rack = _network_of(stage) == "scale-up"
    ranks, volume = ("r", "G") if rack else ("n", "G/r")
    doubled = stage.collective == "all-reduce"
    share = "" if stage.in_network and doubled else f"{'2 ' if doubled else ''}({ranks}-1)/{ranks} "
    return Stage(
        name=stage.name,
        each="step",
        network=_network_of(stage),
        ranks=stage.ranks,
        sent_bytes=stage.sent_bytes,
        time_s=stage.time_s,
        busy_s=stage.sent_bytes / stage.rate_Bps,
        formula=f"{share}{volume} / {'scale-up' if rack else 'scale-out'}",
    )
