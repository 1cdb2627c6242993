"""The plan of interfaces: one subnet per path, names that fit, and commands for each namespace."""

import ipaddress

import pytest

from bicoastal.emulation.ground.processors import Processors
from bicoastal.emulation.ground.wiring import MIDDLE, CoastOptions, Wiring, plan_wiring, relay_groups
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

TAG = "bc0a1b2c"
COASTS = {"east": "/proc/7/fd/3", "west": "/proc/7/fd/4"}


def parallel(count: int, **settings: float) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[
            LinkSpec(name=f"l{number}", a="east", b="west", **{"rate_bps": 1e8, "delay_s": 0.03, **settings})
            for number in range(count)
        ],
        paths=[Path(name=f"p{number}", sites=("east", "west"), links=(f"l{number}",)) for number in range(count)],
    )


def devices(wiring: Wiring) -> list[str]:
    named = [name for port in wiring.ports for name in (port.device, port.middle_device)]
    named += [name for each in wiring.segments.values() for cut in each for name in (cut.left, cut.right)]
    middle = [line.split()[2] for line in wiring.middle_commands(COASTS) if line.startswith("link add")]
    return [*named, *(name for name in middle if name not in named)]


def test_every_path_has_a_subnet_of_its_own_and_every_address_is_unique() -> None:
    wiring = plan_wiring(parallel(600), tag=TAG)
    addresses = [ipaddress.ip_address(port.address) for port in wiring.ports]
    assert len(set(addresses)) == 1200
    assert all(address.is_private for address in addresses)
    subnets = [
        {ipaddress.ip_network(f"{p.address}/24", strict=False) for p in wiring.ports_of(f"p{n}")} for n in range(600)
    ]
    assert all(len(both) == 1 for both in subnets)
    assert len(set.union(*subnets)) == 600


def test_names_fit_an_interface_and_begin_with_the_tag() -> None:
    wiring = plan_wiring(parallel(300), tag=TAG, stages={f"p{number}": 3 for number in range(300)})
    names = devices(wiring)
    assert all(name.startswith(TAG) and len(name) <= 15 for name in names)  # IFNAMSIZ - 1
    # One name at each coast is the same for both: they are in different namespaces.
    assert len(set(names)) == len(names) - 300


def test_the_two_ends_of_a_path_know_each_other() -> None:
    left, right = plan_wiring(parallel(2), tag=TAG).ports_of("p1")
    assert (left.site, right.site) == ("east", "west")
    assert (left.peer_address, left.peer_mac) == (right.address, right.mac)
    assert (right.peer_address, right.peer_mac) == (left.address, left.mac)
    assert int(left.mac[:2], 16) & 0b11 == 0b10  # locally administered, not a group: IEEE 802 §8.2


def test_a_socket_bound_to_an_address_is_routed_by_it() -> None:
    wiring = plan_wiring(parallel(2), tag=TAG)
    port = wiring.port("east", "p1")
    lines = wiring.coast_commands("east", CoastOptions())
    assert f"rule add from {port.address} lookup {port.table} priority {port.table}" in lines
    assert any(line.startswith("route add default") and line.endswith(f"table {port.table}") for line in lines)
    assert f"neighbor replace {port.peer_address} lladdr {port.peer_mac} dev {port.device} nud permanent" in lines


def test_a_congestion_control_is_set_on_every_route_or_on_none() -> None:
    wiring = plan_wiring(parallel(1), tag=TAG)
    chosen = wiring.coast_commands("east", CoastOptions(congestion_control="reno"))
    routes = [line for line in chosen if line.startswith("route")]
    assert len(routes) == 3
    assert all(line.endswith("congctl reno") for line in routes)
    assert not any("congctl" in line for line in wiring.coast_commands("east", CoastOptions()))
    with pytest.raises(ValueError, match=r"^congestion_control: "):
        CoastOptions(congestion_control="reno; reboot")


def test_every_offload_is_turned_off_at_both_ends_of_every_cable() -> None:
    wiring = plan_wiring(parallel(2), tag=TAG, stages={"p0": 2, "p1": 1})
    commands = [command for name in (MIDDLE, "east", "west") for command in wiring.offload_commands(name)]
    assert sorted(command[2] for command in commands) == sorted(
        [name for port in wiring.ports for name in (port.device, port.middle_device)] + [f"{TAG}0x0", f"{TAG}0y0"]
    )
    for command in commands:
        settings = dict(zip(command[3::2], command[4::2], strict=True))
        assert set(settings.values()) == {"off"}
        assert {"tso", "gso", "gro", "lro", "sg", "rx", "tx"} == set(settings)


def test_buffers_hold_what_a_path_can_have_under_way_four_times() -> None:
    # 1 Gbit/s * 60 ms = 7.5 MB under way, and as much in the default queue of one BDP
    wiring = plan_wiring(parallel(1, rate_bps=1e9), tag=TAG)
    assert wiring.buffer_bytes("east") == 4 * (7_500_000 + 7_500_000)
    assert wiring.sysctls("east", CoastOptions())["net.ipv4.tcp_rmem"].split()[2] == "60000000"
    assert plan_wiring(parallel(1, rate_bps=1e6), tag=TAG).buffer_bytes("east") == 4 << 20
    assert plan_wiring(parallel(1, rate_bps=1e12), tag=TAG).buffer_bytes("east") == (1 << 31) - 1


def test_settings_are_of_the_namespace_only() -> None:
    wiring = plan_wiring(parallel(1), tag=TAG, processors=Processors(relays=(0,), coasts=(1,)))
    settings = wiring.sysctls("east", CoastOptions(slow_start_after_idle=False))
    assert settings["net.ipv4.tcp_slow_start_after_idle"] == "0"
    assert settings["net.ipv4.tcp_no_metrics_save"] == "1"
    assert settings["net.ipv6.conf.all.disable_ipv6"] == "1"
    assert settings["net.core.rps_default_mask"] == "00000002"
    assert not any(name.startswith(("net.core.rmem", "net.core.wmem")) for name in settings)  # the machine's
    assert set(wiring.sysctls(MIDDLE, CoastOptions())) == {
        f"net.ipv6.conf.{which}.disable_ipv6" for which in ("all", "default")
    }


def test_sites_have_names_and_so_have_their_paths() -> None:
    wiring = plan_wiring(parallel(2), tag=TAG)
    hosts = dict(line.split()[::-1] for line in wiring.hosts().splitlines())
    assert hosts == {
        "east": "10.64.0.1",
        "west": "10.64.0.2",
        "east-p0": "10.64.0.1",
        "west-p0": "10.64.0.2",
        "east-p1": "10.64.1.1",
        "west-p1": "10.64.1.2",
    }


def test_a_name_that_is_not_a_host_name_is_left_out() -> None:
    topology = Topology(
        sites=[Site(name="the east\n6.6.6.6 bank"), Site(name="west")],
        links=[LinkSpec(name="l", a="the east\n6.6.6.6 bank", b="west", rate_bps=1e8, delay_s=0.03)],
        paths=[Path(name="p", sites=("the east\n6.6.6.6 bank", "west"), links=("l",))],
    )
    assert {line.split()[1] for line in plan_wiring(topology, tag=TAG).hosts().splitlines()} == {"west", "west-p"}


def test_encapsulation_leaves_a_smaller_mtu() -> None:
    topology = Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[LinkSpec(name="l", a="east", b="west", rate_bps=1e8, delay_s=0.03, mtu_bytes=9000)],
        paths=[Path(name="p", sites=("east", "west"), links=("l",), overhead_bytes=50)],
    )
    wiring = plan_wiring(topology, tag=TAG)
    assert {port.mtu_bytes for port in wiring.ports} == {8950}
    assert all("mtu 8950" in line for line in wiring.middle_commands(COASTS) if line.startswith("link add"))


def test_stages_are_joined_by_bridges_in_a_row() -> None:
    wiring = plan_wiring(parallel(1), tag=TAG, stages={"p0": 3})
    masters = [line.split() for line in wiring.middle_commands(COASTS) if " master " in line]
    joined: dict[str, list[str]] = {}
    for _, _, device, _, bridge in masters:
        joined.setdefault(bridge, []).append(device)
    assert list(joined.values()) == [
        [f"{TAG}0l", f"{TAG}0x0"],
        [f"{TAG}0y0", f"{TAG}0x1"],
        [f"{TAG}0y1", f"{TAG}0r"],
    ]


def test_more_paths_than_there_are_names_for_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^paths: there are more than 10000$"):
        plan_wiring(parallel(10_001), tag=TAG)


def test_paths_that_share_a_link_have_the_same_relay() -> None:
    sites = [Site(name=name) for name in ("east", "hub", "west")]
    links = [
        LinkSpec(name="a", a="east", b="hub", rate_bps=1e8, delay_s=0.01),
        LinkSpec(name="b", a="east", b="hub", rate_bps=2e8, delay_s=0.01),
        LinkSpec(name="trunk", a="hub", b="west", rate_bps=1e8, delay_s=0.01),
        LinkSpec(name="direct", a="east", b="west", rate_bps=1e8, delay_s=0.01),
        LinkSpec(name="other", a="east", b="west", rate_bps=2.5e8, delay_s=0.01),
    ]
    paths = [
        Path(name="first", sites=("east", "hub", "west"), links=("a", "trunk")),
        Path(name="direct", sites=("east", "west"), links=("direct",)),
        Path(name="other", sites=("east", "west"), links=("other",)),
        Path(name="second", sites=("east", "hub", "west"), links=("b", "trunk")),
    ]
    topology = Topology(sites=sites, links=links, paths=paths)
    assert [set(group) for group in relay_groups(topology, 2)] == [{"first", "second"}, {"direct", "other"}]
    assert len(relay_groups(topology, 9)) == 3
    (everything,) = relay_groups(topology, 1)
    assert set(everything) == set(topology.paths)
