"""The computed value of each published figure in `references/`, by name, and the formula that gives it.

A figure that is not here is quoted, not computed. `Computed.value` is None where no formula is known but there is
something to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bicoastal.experiments.extrapolation.assumptions import PUBLISHED
from bicoastal.experiments.extrapolation.computation import full_over_selective, scaled_time, time_to_train_s
from bicoastal.experiments.extrapolation.exposure import exposed_share, least_wan_bps
from bicoastal.experiments.extrapolation.fabric import folded_clos_cables, folded_clos_switches
from bicoastal.experiments.extrapolation.stages import gradient_stages, pipeline_stage, tensor_stage
from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.paced import Delay, SelectiveRepeat
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.wan.collectives import LocalStage
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.transformer import Transformer

MONTH_S = 365.25 / 12 * 86400
_SCALE_UP_800G_BPS = 800e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A computed figure, in the unit of the published one. how: the formula. note: what a reader should know."""

    value: float | None
    how: str = ""
    note: str = ""


Inputs = Mapping[str, Any]


def _paper() -> Deployment:
    return load_deployment("hundred-trillion", None)


def _experts() -> Deployment:
    return load_deployment("hundred-trillion-moe", None)


def _slow_scale_up(deployment: Deployment) -> Deployment:
    return replace(deployment, scale_up_Bps=_SCALE_UP_800G_BPS / 8)


def _gradient_stage(name: str, how: str) -> Callable[[Inputs], Computed]:
    def compute(_: Inputs) -> Computed:
        stage = next(stage for stage in gradient_stages(_paper(), PUBLISHED) if stage.name == name)
        return Computed(value=1e3 * stage.time_s, how=how)

    return compute


def _least_wan_bps() -> float:
    return float(least_wan_bps(_paper(), replace(PUBLISHED, wan_serialisation=True)))


def _wan_per_gpu(_: Inputs) -> Computed:
    return Computed(
        value=_least_wan_bps(),
        how="G/(4*87) * 8 / (backward pass - local stages - RTT)",
        note="least rate that hides all; `bicoastal extrapolate` shows what it hangs on",
    )


def _wan_per_flow(_: Inputs) -> Computed:
    return Computed(value=_least_wan_bps() / _paper().planes, how="rate per GPU / planes")


def _exposed_experts(deployment: Deployment) -> Computed:
    share = float(exposed_share(deployment, PUBLISHED))
    return Computed(value=None, note=f"the published model's shape is not known; hundred-trillion-moe has {share:.3f}")


def _faster_scale_out(_: Inputs) -> Computed:
    ours = _exposed_experts(replace(_experts(), scale_out_bps=1600e9))
    # x on scale-out and y on scale-up, in units of computation: (x + y) / (1 + x + y) = 0.20 at 1.8 TB/s, and
    # (x + 18 y) / (1 + x + 18 y) = 0.75 at 800 Gbit/s
    slow, fast = 0.75 / (1 - 0.75), 0.20 / (1 - 0.20)
    up = (slow - fast) / (18 - 1)
    left = up + (fast - up) / 2
    linear = left / (1 + left)
    return Computed(
        value=None,
        note=f"{ours.note}; with nothing hidden the two shares above would leave {linear:.2f}, so something of it is",
    )


def _stable_scale_out(_: Inputs) -> Computed:
    paper = _paper()
    shares = (
        f"{float(exposed_share(replace(paper, scale_out_bps=rate * 1e9), PUBLISHED)):.3f} at {rate} Gbit/s"
        for rate in (200, 400, 800, 1600)
    )
    return Computed(value=None, note=f"a layer exposes {', '.join(shares)}")


def _training_months(_: Inputs) -> Computed:
    paper = _paper()
    time_s = time_to_train_s(
        paper.model, tokens=20 * paper.model.parameters, gpus=paper.gpus, flops=paper.gpu.flops, efficiency=1.0
    )
    months = time_s / MONTH_S
    return Computed(
        value=None,
        note=f"20 tokens per parameter (arXiv 2203.15556) take {months:.1f} months at full efficiency, 48 at "
        f"{100 * months / 48:.0f} % of it",
    )


def _recomputation(_: Inputs) -> Computed:
    model = _paper().model
    return Computed(
        value=model.training_flops("selective") / model.training_flops("none") - 1,
        how="4 s^2 h / (72 s h^2 + 12 s^2 h), attention's core once more",
        note="in operations; the paper's formula is not known",
    )


def _switches(inputs: Inputs) -> Computed:
    switches = folded_clos_switches(inputs["fabric_hosts"], inputs["fabric_ports"], inputs["fabric_tiers"])
    return Computed(value=switches, how="N (2 tiers - 1) / ports")


def _cables(inputs: Inputs) -> Computed:
    cables = folded_clos_cables(inputs["fabric_hosts"], inputs["fabric_tiers"])
    return Computed(value=None, note=f"N (tiers - 1) cables between switches would be {cables:.3g}, twice as many")


def _rails(inputs: Inputs) -> Computed:
    hosts, ports, tiers = inputs["fabric_hosts"], inputs["fabric_ports"], inputs["fabric_tiers"]
    return Computed(
        value=1 - folded_clos_switches(hosts, ports, 2) / folded_clos_switches(hosts, ports, tiers),
        how="1 - 3/7: two tiers for each rail in place of four",
        note="assumes that a rail is small enough for two tiers",
    )


def _rail_cables(inputs: Inputs) -> Computed:
    hosts, tiers = inputs["fabric_hosts"], inputs["fabric_tiers"]
    return Computed(
        value=1 - folded_clos_cables(hosts, 2) / folded_clos_cables(hosts, tiers),
        how="1 - 1/3: two tiers for each rail in place of four",
        note="assumes that a rail is small enough for two tiers",
    )


def _planes(inputs: Inputs) -> Computed:
    hosts, tiers, fewer = inputs["fabric_hosts"], inputs["fabric_tiers"], inputs["plane_tiers"]
    switches = 1 - (2 * fewer - 1) / (2 * tiers - 1)
    return Computed(
        value=1 - folded_clos_cables(hosts, fewer) / folded_clos_cables(hosts, tiers),
        how="1 - 2/3: three tiers in place of four, cables between switches",
        note=f"at equal bandwidth; of the switching capacity {switches:.3f}",
    )


def _permutation(inputs: Inputs) -> Computed:
    time_s = 8 * inputs["flow_bytes"] / inputs["scale_out_bps"]
    return Computed(value=1e3 * time_s, how="100 MB / 800 Gbit/s, without delay")


def _megatron(key: str, *, layers: int, hidden: int) -> Callable[[Inputs], Computed]:
    def compute(inputs: Inputs) -> Computed:
        ratio = full_over_selective(Transformer(layers=layers, hidden=hidden, sequence=2048, vocabulary=51200))
        return Computed(
            value=inputs["megatron_selective_s"][key] * ratio,
            how="measured with selective recomputation * ratio of operations",
        )

    return compute


def _more_gpus(inputs: Inputs) -> Computed:
    small, large = inputs["eos_small_gpus"], inputs["eos_large_gpus"]
    return Computed(
        value=scaled_time(inputs["eos_small_min"], gpus=small, to_gpus=large),
        how=f"{inputs['eos_small_min']} min * {small} / {large}, same efficiency",
        note="what is missing: how well the pipeline fills, and how the batch grows",
    )


def _gpt3_state(inputs: Inputs) -> Computed:
    deployment = load_deployment("gpt3-sakuraone", None)
    state_TB = deployment.model.parameters * deployment.precision.state / 1e12  # noqa: N806 (terabytes are written TB)
    return Computed(
        value=state_TB,
        how=f"{deployment.precision.state:g} bytes per parameter",
        note=f"more than the {inputs['four_nodes_TB']} TB of four nodes",
    )


def _model(name: str) -> Callable[[Inputs], Computed]:
    return lambda _: Computed(value=load_deployment(name, None).model.parameters, how="layers and embeddings")


def _dimensions(bandwidths: str) -> Callable[[Inputs], Computed]:
    def compute(inputs: Inputs) -> Computed:
        rates_Bps = [1e9 * rate for rate in inputs[bandwidths]]  # noqa: N806 (bytes per second are written B/s)
        time_s = 0.0
        for phase in inputs["phases"]:
            volume_bytes, busy_s = phase["volume_bytes"], []
            for ranks, rate_Bps in zip(phase["ranks"], rates_Bps, strict=True):  # noqa: N806
                stage = LocalStage(
                    name="dimension",
                    collective=phase["collective"],
                    ranks=ranks,
                    volume_bytes=volume_bytes,
                    rate_Bps=rate_Bps,
                )
                busy_s.append(stage.time_s)
                volume_bytes /= ranks
            time_s += phase["times"] * max(busy_s)
        return Computed(value=time_s, how="sum over collectives of the busiest dimension's time")

    return compute


def _selective_repeat(loss: float) -> Callable[[Inputs], Computed]:
    def compute(inputs: Inputs) -> Computed:
        rtt_s, message_bytes = inputs["rtt_s"], inputs["message_bytes"]
        model = SelectiveRepeat(
            name="sdr",
            source="arXiv 2505.05366",
            header_bytes=0,
            repair=Delay(rtts=inputs["rto_rtts"], packets=1.0),
            tail=Delay(rtts=inputs["rto_rtts"]),
        )
        crossing = Crossing(
            payload_bytes=float(message_bytes),
            rate_bps=inputs["rate_bps"],
            rtt_s=rtt_s,
            loss=loss,
            mtu_bytes=inputs["chunk_bytes"],
            framing_bytes=0,
        )
        at_sender_s = float(model.mean_s(crossing)) + rtt_s / 2
        return Computed(
            value=at_sender_s / (8 * message_bytes / inputs["rate_bps"] + rtt_s),
            how="mean of max over chunks of i T + (RTO + T)(Y - 1)",
        )

    return compute


FIGURES: dict[str, Callable[[Inputs], Computed]] = {
    "parameters": lambda _: Computed(value=_paper().model.parameters, how="12 L h^2 + 2 V h"),
    "memory_total_TB": lambda _: Computed(
        value=_paper().model.parameters * _paper().precision.state / 1e12, how="4 bytes per parameter"
    ),
    "tensor_parallel_ms": lambda _: Computed(
        value=1e3 * tensor_stage(_paper(), PUBLISHED).time_s, how="2 all-reduces, 2 (t-1)/t s h / 2 bytes / scale-up"
    ),
    "pipeline_parallel_ms": lambda _: Computed(
        value=1e3 * pipeline_stage(_paper(), PUBLISHED).time_s, how="s h/t / 2 bytes / scale-out"
    ),
    "dp_stage_1_rack_ms": _gradient_stage("1 rack", "all-reduce, 2 (3/4) G / scale-up"),
    "dp_stage_2_datacenter_ms": _gradient_stage("2 datacenter", "all-reduce, 2 (86/87) G/4 / scale-out"),
    "dp_stage_3_wide_area_ms": _gradient_stage("3 wide area", "two one-way trips, no serialisation"),
    "dp_stage_4_datacenter_ms": _gradient_stage("4 datacenter", "all-gather, (86/87) G/4 / scale-out"),
    "dp_stage_5_rack_ms": _gradient_stage("5 rack", "all-gather, (3/4) G / scale-up"),
    "exposed_share_dense": lambda _: Computed(
        value=float(exposed_share(_paper(), PUBLISHED)), how="(2 TP + 2 PP) / (3 passes + 2 TP + 2 PP)"
    ),
    "exposed_share_dense_scale_up_800G": lambda _: Computed(
        value=float(exposed_share(_slow_scale_up(_paper()), PUBLISHED)), how="the same, TP 18 times as long"
    ),
    "exposed_share_moe": lambda _: _exposed_experts(_experts()),
    "exposed_share_moe_scale_up_800G": lambda _: _exposed_experts(_slow_scale_up(_experts())),
    "exposed_share_moe_scale_out_1600G_below": _faster_scale_out,
    "dense_exposed_share_stable_from_scale_out_bps": _stable_scale_out,
    "wan_bandwidth_per_gpu_masking_everything_bps": _wan_per_gpu,
    "wan_bandwidth_per_flow_bps": _wan_per_flow,
    "training_months": _training_months,
    "selective_recompute_overhead": _recomputation,
    "fat_tree_switches": _switches,
    "fat_tree_cables": _cables,
    "multi_rail_76x4_saving_chips": _rails,
    "multi_rail_76x4_saving_cables": _rail_cables,
    "four_plane_saving_switches_and_cables": _planes,
    "fct_8192_hosts_optimal_ms": _permutation,
    "libra_gpt3_4d_communication_s": _dimensions("bandwidth_GBps"),
    "libra_gpt3_4d_equal_split_communication_s": _dimensions("equal_split_GBps"),
    "sdr_rdma_mean_slowdown_at_1e-4": _selective_repeat(1e-4),
    "sdr_rdma_mean_slowdown_at_1e-3": _selective_repeat(1e-3),
    "eos_10752_h100_min": _more_gpus,
    "megatron_full_recompute_22b_s": _megatron("m22b", layers=48, hidden=6144),
    "megatron_full_recompute_175b_s": _megatron("m175b", layers=96, hidden=12288),
    "megatron_full_recompute_530b_s": _megatron("m530b", layers=105, hidden=20480),
    "megatron_full_recompute_1t_s": _megatron("m1t", layers=128, hidden=25600),
    "gpt3_parameters": _model("gpt3-sakuraone"),
    "gpt3_state_TB": _gpt3_state,
    "llama3_405b_parameters": _model("llama3-405b"),
}
