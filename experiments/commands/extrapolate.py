"""`bicoastal extrapolate`: the stages of a deployment, their exposed time, and the rate that the WAN needs."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from bicoastal import Deployment, Extrapolation, extrapolate
from bicoastal.commandline import format_rate, format_size, format_time, parse_override, rounded
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.showing import show
from bicoastal.planning import DEFAULT_DEPLOYMENT, Stage, WideArea

WIDE_COLUMNS = 110
SYMBOLS = (
    "G: a GPU's gradients; r replicas in a rack (n racks of a layer at a site), t GPUs of a replica, e replicas that "
    "share experts; b s h: micro-batch, sequence, width; k experts for each token; B: bytes of an element."
)


# -- JSON -------------------------------------------------------------------------------------------------------------


def to_document(found: Extrapolation) -> dict[str, Any]:
    """Return the JSON document; bytes, seconds and bit/s, floats with 12 digits. A missing rate is null."""
    d = found.deployment
    document: dict[str, Any] = {
        "deployment": {
            "name": d.name,
            "source": d.source,
            "parameters": d.model.parameters,
            "gpus": d.gpus,
            "sites": d.sites,
            "messages_per_step": d.messages_per_step,
            "messages_per_layer": d.messages_per_layer,
        },
        "assumptions": asdict(found.assumptions),
        "memory": {
            **asdict(found.memory),
            "total_bytes": found.memory.total_bytes,
            "fits": found.memory.fits,
            "verdict": found.memory_verdict,
        },
        "stages": [asdict(stage) for stage in found.stages],
        "passes": {"forward": asdict(found.forward), "backward": asdict(found.backward)},
        "exposure": {
            "layer_share": found.layer_share,
            "gradient_s": found.gradient_s,
            "cover_s": found.cover_s,
            "gradient_exposed_s": found.gradient_exposed_s,
            "step_s": found.step_s,
            "step_share": found.step_share,
            "bubble_share": found.bubble_share,
        },
        "wan": None if found.wan is None else asdict(found.wan),
        "hangs_on": [asdict(change) for change in found.changes],
    }
    written: dict[str, Any] = rounded(document)
    return written


# -- table ------------------------------------------------------------------------------------------------------------


def to_table(found: Extrapolation, *, width: int) -> Group:
    """Return the tables: the stages, their exposed time, and the assumptions that change the WAN rate."""
    d = found.deployment
    wide = width >= WIDE_COLUMNS
    where = "one site" if d.sites == 1 else f"two sites, {format_time(d.wan_rtt_s)} RTT"
    title = f"{d.name}: {d.model.parameters:.4g} parameters on {d.gpus:,} GPUs at {where}"
    parts: list[Text | Table] = [
        Text(title, style="bold"),
        Text(d.source, style="dim"),
        Text(f"memory: {found.memory_verdict}", style="" if found.memory.fits else "yellow"),
        Text(),
        _stage_table(found.stages, wide=wide),
        Text(),
        *map(Text, _exposure_lines(found)),
    ]
    if found.wan is not None:
        parts += [Text(), *map(Text, _wan_lines(found.wan, d))]
        if any(change.least_bps is not None for change in found.changes):
            parts += [Text(), _change_table(found)]
    parts += [Text(), *(Text(line, style="dim") for line in _meaning(found, wide=wide))]
    return Group(*parts)


def _stage_table(stages: Sequence[Stage], *, wide: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("stage", no_wrap=True)
    table.add_column("for each", no_wrap=True)
    table.add_column("network", no_wrap=True)
    for heading in ("ranks", "sent", "time, ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    if wide:
        table.add_column("formula", no_wrap=True)
    for stage in (stage for stage in stages if stage.ranks > 1):
        cells = [
            stage.name,
            stage.each,
            stage.network,
            str(stage.ranks),
            format_size(stage.sent_bytes),
            f"{1e3 * stage.time_s:.2f}",
        ]
        table.add_row(*map(Text, [*cells, stage.formula] if wide else cells))
    return table


def _exposure_lines(found: Extrapolation) -> list[str]:
    d, a = found.deployment, found.assumptions
    layer = "layer" if d.layers_per_stage == 1 else f"stage of {d.layers_per_stage} layers"
    both = found.forward.compute_s + found.backward.compute_s
    of = "computation and communication" if a.communication_covers else "computation"
    left = (
        "nothing is exposed"
        if found.gradient_exposed_s == 0
        else f"{format_time(found.gradient_exposed_s)} are exposed in every step"
    )
    return [
        f"micro-batch through a {layer}: {format_time(both)} of computation, "
        f"{format_time(found.forward.communication_s + found.backward.communication_s)} of tensor, pipeline and expert "
        f"communication, never hidden: {100 * found.layer_share:.2f} % exposed.",
        f"gradients: {format_time(found.gradient_s)}, behind {format_time(found.cover_s)} of {of} of "
        f"{a.cover_passes:g} backward pass{'' if a.cover_passes == 1 else 'es'}: {left}.",
        f"step of {d.micro_batches} micro-batch{'' if d.micro_batches == 1 else 'es'}: {format_time(found.step_s)} "
        f"of work, {100 * found.step_share:.2f} % of it exposed; besides, stages wait {100 * found.bubble_share:.0f} % "
        "of the whole while the pipeline fills and drains, unless they come in parts.",
    ]


def _wan_lines(wan: WideArea, deployment: Deployment) -> list[str]:
    lines = [
        f"WAN: {format_size(wan.sent_bytes)} from each GPU in each direction; {wan.messages_per_step:,} messages in a "
        f"step and trip, {wan.messages_per_layer:,} for one pipeline stage."
    ]
    if wan.least_bps is None:
        lines.append(
            f"no WAN rate hides it all: {wan.reason}; {wan.least_passes:.3g} backward passes would do at any rate."
        )
        return lines
    lines.append(
        f"least WAN rate that hides it all: {format_rate(wan.least_bps)} per GPU, "
        f"{format_rate(wan.least_bps / deployment.planes)} per flow, {format_rate(wan.least_bps * wan.gpu_pairs)} "
        "across the country each way."
    )
    if wan.spare_s is not None and deployment.wan_bps is not None and wan.spare_s > 0:
        share = wan.spare_s / deployment.wan_rtt_s
        lines.append(
            f"at {format_rate(deployment.wan_bps)} the slowest message may lose {format_time(wan.spare_s)}, "
            f"{share:.2g} round trips, before anything is exposed."
        )
    return lines


def _change_table(found: Extrapolation) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("what that hangs on")
    for heading in ("Gbit/s per GPU", "per flow"):
        table.add_column(heading, justify="right", no_wrap=True)
    for change in found.changes:
        cells = (
            ("no rate", "")
            if change.least_bps is None
            else (f"{change.least_bps / 1e9:.2f}", f"{change.least_bps / 1e9 / found.deployment.planes:.2f}")
        )
        table.add_row(Text(change.what), *map(Text, cells))
    return table


def _meaning(found: Extrapolation, *, wide: bool) -> list[str]:
    lines = [SYMBOLS] if wide else []
    if found.deployment.sites == 2 and found.deployment.wan_bps is None:
        lines.append("no WAN rate is given (plant.wan): the wide-area stage is shown without its bytes' time.")
    lines.append(
        "times are those of an ideal transport; what the slowest of all messages adds depends on the real one. "
        "--set assumptions.KEY=VALUE or plant.KEY=VALUE changes what is assumed."
    )
    return lines


# -- command ----------------------------------------------------------------------------------------------------------


def add_case_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a deployment and change it."""
    command.add_argument(
        "--deployment",
        default=DEFAULT_DEPLOYMENT,
        metavar="D",
        help=f"a bundled deployment or a .toml file (default: {DEFAULT_DEPLOYMENT})",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the deployment or an assumption: plant.wan_rtt='20 ms', assumptions.wan_trips=1, …",
    )


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser(
        "extrapolate",
        help="reckon a whole deployment: stages, exposure, and the WAN rate it needs",
        description="Print how long each stage of a deployment's communication takes, what of it computation hides, "
        "and the least WAN rate that leaves nothing exposed, with an ideal transport.",
    )
    add_case_options(command)
    command.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    command.set_defaults(command=_extrapolate)


def _extrapolate(arguments: argparse.Namespace) -> int:
    found = extrapolate(arguments.deployment, changes=[parse_override(text) for text in arguments.set])
    if arguments.json:
        say_document(to_document(found))
    else:
        show(to_table(found, width=Console().width))
    return 0
