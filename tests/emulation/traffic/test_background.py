"""Both ends make the same octets, and no two places have the same ones."""

from bicoastal.emulation.traffic.background import BackgroundOctets
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.registry import Registry
from helpers.small_runs import background, plane, planes, run_spec

PLANES = planes(plane(), plane("plane1", rate_bps=3e8))


def octets(size: int, name: str = "others") -> tuple[BackgroundOctets, list[str]]:
    part = background("reno", message_bytes=size, paths=tuple(PLANES.paths), name=name)
    flows = [flow for flow in plan_flows(run_spec(PLANES, background=(part,)), Registry.installed())
             if flow.owner == name]  # fmt: skip
    return BackgroundOctets(part, flows), [flow.name for flow in flows]


def test_a_part_is_the_same_at_both_ends_and_at_any_time() -> None:
    one, names = octets(400_000)
    other, _ = octets(400_000)
    for number in (1, 2, 65_537, 10**12):
        for name in names:
            assert one.part(number, name) == other.part(number, name)
    assert [len(one.part(7, name)) for name in names] == [100_000, 300_000]  # 100 and 300 Mbit/s


def test_parts_messages_and_names_differ() -> None:
    made, (first, second) = octets(400_000)
    assert made.part(1, first) != made.part(2, first)
    assert made.part(1, first)[:1000] != made.part(1, second)[:1000]
    assert octets(400_000, "more")[0].part(1, first.replace("others", "more")) != made.part(1, first)


def test_parts_together_are_the_message() -> None:
    made, names = octets(400_000)
    alone = background("reno", message_bytes=400_000)
    (flow,) = [
        flow for flow in plan_flows(run_spec(PLANES, background=(alone,)), Registry.installed())
        if flow.owner == "others"
    ]  # fmt: skip
    whole = BackgroundOctets(alone, [flow]).part(3, flow.name)
    assert b"".join(made.part(3, name) for name in names) == whole


def test_a_message_of_one_byte_leaves_some_flows_nothing() -> None:
    made, names = octets(1)
    assert sorted(len(made.part(1, name)) for name in names) == [0, 1]
