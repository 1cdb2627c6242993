"""Coasts without namespaces: processes on this machine's loopback interface, with no links between them."""

import os
from collections.abc import Sequence
from pathlib import Path

from bicoastal.emulation.processes.coordination import PathEnd
from bicoastal.wan.topology import Topology


class LoopbackGround:
    """Gives each coast an address of its own for each path, out of 127.0.0.0/8. pids: of what was started."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        self.directory = directory
        self.pids: list[int] = []
        tag = os.getpid() % 250 + 1  # tests run at once, and ports are the same in all
        self._ends: dict[str, list[PathEnd]] = {}
        for number, path in enumerate(topology.paths.values()):
            addresses = [f"127.{tag}.{number}.{place}" for place in (1, 2)]
            for site, address, peer in zip(
                (path.sites[0], path.sites[-1]), addresses, reversed(addresses), strict=True
            ):
                end = PathEnd(path=path.name, address=address, peer_address=peer, device="lo", table="main")
                self._ends.setdefault(site, []).append(end)

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        """Return the command itself: everything is here."""
        return list(argv)

    def path_ends(self, site: str) -> Sequence[PathEnd]:
        """Return the coast's addresses."""
        return self._ends[site]

    def record(self, pid: int) -> None:
        """Keep the number of a process."""
        self.pids.append(pid)
