"""Mininet's hosts and netem's links, measured. Inside the guest, where Mininet is: `make test-vm`."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.ground.wiring import CoastOptions
from bicoastal.emulation.mininet.backend import MininetBackend
from bicoastal.emulation.mininet.coasts import MininetCoasts
from bicoastal.emulation.probing.probe import probe
from bicoastal.emulation.testing import check_backend
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Site, Topology
from bicoastal.wan.topology import Path as WanPath

TOPOLOGY_FILE = Path(__file__).parents[3] / "emulation" / "mininet" / "topology.py"
LINK = LinkSpec(name="plane", a="east", b="west", rate_bps=2e7, delay_s=0.03, loss=Bernoulli(probability=0.02))

pytestmark = pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning")  # Mininet's
in_the_guest = pytest.mark.vm


@pytest.fixture
def mininet() -> None:
    pytest.importorskip("mininet", reason="Mininet is in the guest: make test-vm")


def topology(*links: LinkSpec) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=links,
        paths=[WanPath(name=link.name, sites=("east", "west"), links=(link.name,)) for link in links],
    )


def links_of_the_machine() -> str:
    return subprocess.run(["ip", "-oneline", "link"], check=True, capture_output=True, text=True).stdout


@in_the_guest
@pytest.mark.usefixtures("mininet")
def test_paths_are_as_specified_and_leave_nothing_behind() -> None:
    spec = topology(LINK, replace(LINK, name="jumbo", rate_bps=1e7, mtu_bytes=9000, loss=Bernoulli(probability=0.0)))
    before, network = links_of_the_machine(), os.readlink("/proc/thread-self/ns/net")
    with MininetCoasts(spec, options=CoastOptions(), seed=1) as coasts:
        probe(coasts).require()
        names = [node.name for node in coasts.nodes]
        assert names[:2] == ["east1", "west1"]
        wrong = topology(replace(LINK, delay_s=0.04), spec.links["jumbo"])
        coasts.wiring = replace(coasts.wiring, topology=wrong)
        with pytest.raises(RunFailedError, match=r"plane east>west one-way delay: 30\.\d\d ms, wanted 40\.\d\d ms"):
            probe(coasts, loss_time_s=0.1).require()
    assert links_of_the_machine() == before
    assert os.readlink("/proc/thread-self/ns/net") == network


@in_the_guest
@pytest.mark.usefixtures("mininet")
def test_it_passes_the_conformance_suite() -> None:
    report = check_backend(MininetBackend(Registry.installed(), probing=False))
    report.raise_on_failure()
    assert report.unsupported == {}


@in_the_guest
@pytest.mark.usefixtures("mininet")
def test_mn_starts_the_topology_and_every_host_reaches_every_other_in_sixty_milliseconds() -> None:
    done = subprocess.run(
        ["mn", "--custom", str(TOPOLOGY_FILE), "--topo", "bicoastal,planes=2", "--arp"],
        input="pingall\npingallfull\nexit\n",  # links are up a moment after they are made
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = done.stdout + done.stderr
    pairs = dict(re.findall(r"(\w+->\w+): 1/1, rtt min/avg/max/mdev ([\d.]+)/", said))
    assert len(pairs) == 12, said
    across = [float(rtt_ms) for pair, rtt_ms in pairs.items() if pair[:4] != pair.partition("->")[2][:4]]
    within = [float(rtt_ms) for pair, rtt_ms in pairs.items() if pair[:4] == pair.partition("->")[2][:4]]
    assert len(across) == 8
    assert all(60.0 < rtt_ms < 63.0 for rtt_ms in across), said
    assert all(rtt_ms < 10.0 for rtt_ms in within), said


@in_the_guest
@pytest.mark.usefixtures("mininet")
def test_what_netem_cannot_do_is_refused_before_anything_is_made() -> None:
    dark = topology(replace(LINK, events=(Outage(at_s=1.0, duration_s=1.0),)))
    with pytest.raises(UnsupportedError, match=r"^netem cannot change link 'plane' while a run goes on"):
        MininetCoasts(dark, options=CoastOptions(), seed=1)


def test_without_mininet_the_world_is_unsupported_in_one_sentence() -> None:
    try:
        import mininet  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("Mininet is here")
    with pytest.raises(UnsupportedError) as caught:
        MininetCoasts(topology(LINK), options=CoastOptions(), seed=1)
    said = r"(ip|tc|ethtool|mn|mnexec|Mininet)[^\n]*(apt-get install [\w -]+|run in the guest)"
    assert re.fullmatch(said, str(caught.value))
