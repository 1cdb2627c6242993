"""`bicoastal list`: what there is to choose from."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from bicoastal.emulation.registry import BackendRegistry, UnknownBackendError
from bicoastal.experiments.scenario.bundled import Kind, bundled_data, bundled_names
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.experiments.scenario.tables import ScenarioError, parse_toml
from bicoastal.experiments.terminal.console import DONE, say
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.units import format_size


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    listing = commands.add_parser("list", help="list what there is to choose from")
    listing.add_argument("what", nargs="?", choices=tuple(_LISTS))
    listing.set_defaults(command=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.what is None:
        raise ScenarioError(f"list: expected what to list, one of {', '.join(_LISTS)}")
    rows = _LISTS[arguments.what]()
    # a terminal would break words at its edge; a file or a pipe wants one line for each
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in to_lines(rows, columns):
        say(line)
    return DONE


def to_lines(rows: Sequence[tuple[str, str]], columns: int | None) -> list[str]:
    """Return names and descriptions side by side, wrapped at so many columns; None: one line for each."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, description in rows:
        parts = [description]
        if columns is not None:
            parts = textwrap.wrap(description, max(columns - width - 2, 20)) or [""]
        lines += [f"{label:{width}}  {part}".rstrip() for label, part in zip_longest([name], parts, fillvalue="")]
    return lines


def _list_transports() -> list[tuple[str, str]]:
    registry = Registry.installed()
    rows = []
    for name in registry.names():
        try:
            rows.append((name, registry.resolve(name).description))
        except UnknownTransportError as error:
            rows.append((name, f"unusable: {error}"))
    return rows


def _list_backends() -> list[tuple[str, str]]:
    registry = BackendRegistry.installed()
    rows = []
    for name in registry.names():
        try:
            backend = registry.resolve(name)
        except UnknownBackendError as error:
            rows.append((name, f"unusable: {error}"))
        else:
            rows.append((name, (backend.__doc__ or "").strip().splitlines()[0] if backend.__doc__ else ""))
    return rows


def _list_scenarios() -> list[tuple[str, str]]:
    return _titled("scenarios", "scenario")


def _titled(kind: Kind, table: str) -> list[tuple[str, str]]:
    """Return the name and description of each bundled file of a kind, the latter from its table called `table`."""
    rows = []
    for name in bundled_names(kind):
        header = parse_toml(bundled_data(kind, name), f"{name}.toml").get(table)
        rows.append((name, str(header.get("description", "")) if isinstance(header, dict) else ""))
    return rows


def _list_deployments() -> list[tuple[str, str]]:
    rows = []
    for name in bundled_names("deployments"):
        deployment = load_deployment(name, None)
        shard = format_size(deployment.wide_area_shard_bytes)
        pairs = f"{deployment.gpu_pairs:,} GPU pairs, {shard} for each to send across"
        what = pairs if deployment.sites == 2 else f"{deployment.gpus:,} GPUs at one site"
        rows.append((name, f"{what}. {deployment.source}"))
    return rows


def _list_studies() -> list[tuple[str, str]]:
    return _titled("studies", "study")


_LISTS = {
    "transports": _list_transports,
    "backends": _list_backends,
    "scenarios": _list_scenarios,
    "studies": _list_studies,
    "deployments": _list_deployments,
}
