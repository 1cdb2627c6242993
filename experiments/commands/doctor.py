"""`bicoastal doctor` shows what this machine can do; `bicoastal clean` removes the remains of killed runs."""

import argparse
import os
import platform
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from bicoastal.backend import RunFailedError
from bicoastal.commandline import format_rate, format_time
from bicoastal.experiments.terminal.console import say
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.showing import show
from bicoastal.machine import Ceiling, HostFacts, MachineCeiling, clean, machine_ceiling, survey


def add_parsers(commands: Any) -> None:
    """Add the commands to argparse's subparsers."""
    doctor = commands.add_parser(
        "doctor",
        help="say what this machine can do",
        description="Say what this machine can do with real packets, and for each thing that is missing the command "
        "that adds it. Ends with 3 when there can be no real packets at all.",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    doctor.set_defaults(command=_doctor)
    cleaning = commands.add_parser("clean", help="remove what killed runs of this user left")
    cleaning.set_defaults(command=_clean)


def _doctor(arguments: argparse.Namespace) -> int:
    found = survey()
    machine = machine_ceiling() if found.has("relay") else None
    if arguments.json:
        say_document(to_document(found, machine))
    else:
        show(to_table(found), *ceiling_lines(found.ceiling, machine))
    return 0 if found.has("relay") else 3


def to_document(found: HostFacts, machine: MachineCeiling | None) -> dict[str, object]:
    """Return the JSON document; rates are in bit/s, times in seconds.

    own_packets_per_s: data packets of our own transports, both directions together, in one run.
    """
    return {
        "kernel": platform.release(),
        "processors": len(os.sched_getaffinity(0)),
        "facts": [asdict(fact) for fact in found.facts],
        "ceiling": None if found.ceiling is None else asdict(found.ceiling),
        "own_packets_per_s": None if machine is None else machine.own_per_s,
    }


def to_table(found: HostFacts) -> Table:
    """Return the table: each ability of the machine, or the command that adds it."""
    title = f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} processors"
    table = Table(title=title, title_justify="left", title_style="", box=None, header_style="bold", pad_edge=False)
    table.add_column("what", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("remarks", overflow="fold")
    for fact in found.facts:
        remarks = ". ".join(filter(None, (fact.detail.rstrip("."), f"To add it: {fact.remedy}" if fact.remedy else "")))
        table.add_row(fact.name, Text("yes") if fact.available else Text("no", style="bold red"), Text(remarks))
    return table


def ceiling_lines(ceiling: Ceiling | None, machine: MachineCeiling | None) -> list[str]:
    """Return what was measured, in words."""
    lines = []
    if ceiling is not None:
        lines += [
            f"ceiling: the relay carried {format_rate(ceiling.tcp_bps)} of kernel TCP at MTU 1500, "
            f"{ceiling.packets_per_s:,.0f} frames/s, with {ceiling.cpu_share:.0%} of a core;",
            f"at half of that, 99 % of frames were less than {format_time(ceiling.half_p99_s)} late.",
        ]
    if machine is not None:
        lines.append(
            f"our own transports: {machine.own_per_s:,.0f} data packets/s, both directions together, which at MTU 9000 "
            f"is {format_rate(machine.own_per_s * 9000 * 8)}."
        )
    return lines


def _clean(_arguments: argparse.Namespace) -> int:
    try:
        report = clean(to_the_last=True)
    except OSError as error:
        raise RunFailedError(f"{error.filename} cannot be removed ({error.strerror})") from error
    for tag in report.removed:
        say(f"removed the run {tag}")
    for pid in report.killed:
        say(f"ended process {pid}")
    for tag in report.running:
        say(f"left alone the run {tag}, which is alive")
    if not (report.removed or report.killed):
        say("there was nothing to remove")
    return 0
