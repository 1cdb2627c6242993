"""The WAN rate that a deployment needs with an ideal transport, and how it changes with each assumption."""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.exposure import cover_s, least_wan_bps
from bicoastal.experiments.extrapolation.stages import gradient_s, wide_area_s
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.units import format_time

CHUNKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WideArea:
    """What crosses the WAN, and the rate that it needs.

    sent_bytes: by a GPU in one direction, all trips. least_bps: of a GPU, the least rate that hides all gradients; None
    where no rate does, for `reason`. least_passes: the number of backward passes that must hide them for any rate to be
    enough. spare_s: how much longer the wide-area stage may take at the deployment's own rate before anything is
    exposed (negative: what is exposed); None where the deployment has no rate.
    """

    sent_bytes: float
    rtt_s: float
    rate_bps: float | None
    gpu_pairs: int
    messages_per_step: int
    messages_per_layer: int
    least_bps: float | None
    least_aggregate_bps: float | None
    reason: str
    least_passes: float
    spare_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed assumption, and the least rate of a GPU with it; None where no rate is enough."""

    what: str
    least_bps: float | None


def wide_area(deployment: Deployment, assumptions: Assumptions) -> WideArea | None:
    """Return what the deployment needs of the WAN; None where there is one site."""
    if deployment.sites == 1:
        return None
    counted = replace(assumptions, wan_serialisation=True)
    least_bps = _least(deployment, counted)
    spare_s = None
    if deployment.wan_bps is not None:
        latency_s, busy_s = wide_area_s(deployment, counted, deployment.wan_bps)
        spare_s = float(cover_s(deployment, counted) - gradient_s(deployment, counted, latency_s, busy_s))
    return WideArea(
        sent_bytes=deployment.wide_area_bytes(assumptions.wan_trips),
        rtt_s=deployment.wan_rtt_s,
        rate_bps=deployment.wan_bps,
        gpu_pairs=deployment.gpu_pairs,
        messages_per_step=deployment.messages_per_step,
        messages_per_layer=deployment.messages_per_layer,
        least_bps=least_bps,
        least_aggregate_bps=None if least_bps is None else least_bps * deployment.gpu_pairs,
        reason=_reason(deployment, counted) if least_bps is None else "",
        least_passes=_unavoidable_s(deployment, counted) / cover_s(deployment, replace(counted, cover_passes=1.0)),
        spare_s=spare_s,
    )


def _least(deployment: Deployment, assumptions: Assumptions, **options: Any) -> float | None:
    found = float(least_wan_bps(deployment, assumptions, **options))
    return found if isfinite(found) else None


def _unavoidable_s(deployment: Deployment, assumptions: Assumptions) -> float:
    """Return the time of the whole all-reduce over a WAN of unlimited rate."""
    return float(gradient_s(deployment, assumptions, wide_area_s(deployment, assumptions, 1.0)[0]))


def _reason(deployment: Deployment, assumptions: Assumptions) -> str:
    local_s = float(gradient_s(deployment, assumptions, 0.0))
    delay_s = float(wide_area_s(deployment, assumptions, 1.0)[0])
    return (
        f"the stages inside a site take {format_time(local_s)} and the delay {format_time(delay_s)}, and there are "
        f"{format_time(cover_s(deployment, assumptions))} to hide behind"
    )


def changes(deployment: Deployment, assumptions: Assumptions) -> tuple[Change, ...]:
    """Return the least rate as assumed, and with each assumption changed in turn; empty where there is one site."""
    if deployment.sites == 1:
        return ()
    base = replace(assumptions, wan_serialisation=True)
    trips = "two one-way trips" if base.wan_trips == 2 else "one trip"
    rows: list[tuple[str, dict[str, Any]]] = [
        (f"as assumed: {trips}, {_pieces(base.chunks)}", {}),
        _other_trips(base),
        _other_chunks(base),
    ]
    if base.local_reduction == "all-reduce":
        rows.append(("reduce-scatter before the WAN in place of all-reduce", {"local_reduction": "reduce-scatter"}))
    if not {"rack", "datacenter"} <= set(base.in_network):
        everywhere = tuple(dict.fromkeys((*base.in_network, "rack", "datacenter")))
        rows.append(("switches that add up, in rack and data centre", {"in_network": everywhere}))
    if not base.communication_covers:
        rows.append(("the pass's tensor and pipeline communication covers too", {"communication_covers": True}))
    if base.count_recomputation and deployment.recomputation != "none":
        rows.append(("the backward pass without what it computes again", {"count_recomputation": False}))
    rows.append(
        (
            "one more backward pass to hide behind, as for the pipeline's next stage",
            {"cover_passes": base.cover_passes + 1},
        )
    )
    rows.append(("no backward pass to hide behind, as for the pipeline's first stage", {"cover_passes": 0.0}))
    found = [Change(what=what, least_bps=_least(deployment, replace(base, **change))) for what, change in rows]
    rtt_s = deployment.wan_rtt_s
    found += [
        Change(
            what="the slowest message loses a round trip",
            least_bps=_least(deployment, base, lost_s=rtt_s),
        ),
        Change(what="half the distance", least_bps=_least(deployment, base, rtt_s=rtt_s / 2)),
    ]
    if base.local_reduction == "all-reduce" and base.wan_trips == 2:
        best = replace(base, wan_trips=1, local_reduction="reduce-scatter", chunks=max(base.chunks, CHUNKS))
        lost = _least(deployment, best, lost_s=rtt_s)
        found += [
            Change(what=f"one trip, reduce-scatter and {CHUNKS} chunks together", least_bps=_least(deployment, best)),
            Change(what="the same, and the slowest message loses a round trip", least_bps=lost),
        ]
    return tuple(found)


def _pieces(chunks: int) -> str:
    return "stages one after another" if chunks == 1 else f"{chunks} chunks"


def _other_trips(base: Assumptions) -> tuple[str, dict[str, Any]]:
    if base.wan_trips == 2:
        return "an exchange: one trip", {"wan_trips": 1}
    return "reduce-scatter and all-gather: two trips", {"wan_trips": 2}


def _other_chunks(base: Assumptions) -> tuple[str, dict[str, Any]]:
    if base.chunks == 1:
        return f"{CHUNKS} chunks through the stages at once", {"chunks": CHUNKS}
    return "stages one after another", {"chunks": 1}
