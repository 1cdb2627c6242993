"""What is found about a machine agrees with what can be done on it."""

import subprocess
from pathlib import Path

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.namespaces import find_tool, require_tools
from bicoastal.emulation.probing import host
from bicoastal.emulation.probing.host import Fact, HostFacts, available_congestion_controls, measure_ceiling, survey


def test_a_fact_is_found_by_its_name() -> None:
    facts = HostFacts(facts=(Fact(name="netem", available=False), Fact(name="tbf", available=True)), ceiling=None)
    assert facts.has("tbf")
    assert not facts.has("netem")
    with pytest.raises(KeyError):
        facts.has("magic")


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bicoastal.emulation.ground.namespaces.find_tool", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"^ip, ethtool is missing; apt-get install ethtool iproute2$"):
        require_tools("ip", "ethtool")


def test_tools_are_found_where_an_ordinary_users_path_does_not_lead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    where = find_tool("sh")
    assert where is not None
    assert subprocess.run([where, "-c", "exit 5"], check=False).returncode == 5
    assert find_tool("no-such-program") is None


def test_a_module_that_the_kernel_has_is_one_command_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text("kernel/net/sched/sch_netem.ko.xz: kernel/lib/other.ko\nkernel/tcp_bbr.ko:\n")
    monkeypatch.setattr(host, "_modules_directory", lambda: tmp_path)
    assert host._module_remedy("sch_netem") == "modprobe sch_netem"
    assert host._module_remedy("tcp_bbr") == "modprobe tcp_bbr"
    assert host._module_remedy("other") == ""


@pytest.mark.root
def test_the_survey_tells_what_there_is_and_how_to_get_the_rest() -> None:
    found = survey(with_ceiling=False)
    assert found.ceiling is None
    assert found.has("namespaces as root") or found.has("namespaces without root")
    assert found.has("tbf") == (subprocess.run(["tc", "-V"], check=False, capture_output=True).returncode == 0)
    assert found.has("cubic") == ("cubic" in available_congestion_controls())
    for fact in found.facts:
        assert not (fact.available and fact.remedy), fact
        assert "\n" not in fact.detail + fact.remedy
    names = [fact.name for fact in found.facts]
    assert len(names) == len(set(names))
    assert {"netem", "MPTCP", "Mininet", "iperf3", "bbr", "real-time priority"} <= set(names)


@pytest.mark.root
def test_the_ceiling_is_measured_in_a_few_seconds() -> None:
    ceiling = measure_ceiling(duration_s=0.5)
    # two frames of data for one acknowledgement at most, and 1448 bytes in each: RFC 9293 §3.8.6.3
    assert ceiling.tcp_bps / (1448 * 8) < ceiling.packets_per_s * 1.2
    assert 0 < ceiling.cpu_share <= 1.01
    assert ceiling.tcp_bps > 50e6
