import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.b4.messages import (
    AgentState,
    Grant,
    MalformedMessageError,
    PathReport,
    Share,
    decode,
    wire_bytes,
)

STATE = AgentState(
    flow="job/west>east/plane0",
    instance=2**64 - 1,
    sequence=3,
    reason="announce",
    demand_bytes=57_131_589,
    deadline_s=0.1,
    back=False,
    epoch=5,
    granted=2,
    lease_left_s=1.5,
    paths=(PathReport(name="plane0", up=True, forward_bps=5e9, back_bps=1e6),),
)
GRANT = Grant(
    epoch=5,
    sequence=2,
    instance=2**64 - 1,
    heard=3,
    lease_s=6.0,
    shares=(Share(forward_bps=5e9, back_bps=1e6, safe_bps=1e8, safe_back_bps=1e5, overhead_bytes=38),),
)


@pytest.mark.parametrize("message", [STATE, GRANT])
def test_a_message_survives_its_octets(message: AgentState | Grant) -> None:
    assert decode(bytes(message)) == message
    assert decode(message) is message
    assert wire_bytes(message) == 74 + len(bytes(message))


@given(st.floats(0, 1e15), st.floats(0, 1e15))
def test_rates_survive_to_the_bit(forward_bps: float, safe_bps: float) -> None:
    share = Share(forward_bps=forward_bps, back_bps=0.0, safe_bps=safe_bps, safe_back_bps=0.0, overhead_bytes=0)
    grant = Grant(epoch=1, sequence=1, instance=1, heard=1, lease_s=1.0, shares=(share,))
    assert decode(bytes(grant)) == grant


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_noise_is_refused(octets: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode(octets)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 2}, "version"),
        ({"version": None}, "version"),
        ({"type": "order"}, "type"),
        ({"flow": ""}, "flow"),
        ({"flow": 7}, "flow"),
        ({"instance": -1}, "instance"),
        ({"instance": 2**64}, "instance"),
        ({"sequence": 1.5}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"reason": "because"}, "reason"),
        ({"demand_bytes": "many"}, "demand_bytes"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"deadline_s": 1e300}, "deadline_s"),
        ({"back": 0}, "back"),
        ({"lease_left_s": None}, "lease_left_s"),
        ({"paths": {}}, "paths"),
        ({"paths": [1]}, "paths"),
        ({"paths": [{}]}, "name"),
        ({"paths": [{"name": "p", "up": "yes", "forward_bps": 1, "back_bps": 1}]}, "up"),
        ({"paths": [{"name": "p", "up": True, "forward_bps": 1, "back_bps": 1, "more": 1}]}, "more"),
        ({"paths": [{}] * 257}, "paths"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], field: str) -> None:
    document = json.loads(bytes(STATE)) | changes
    with pytest.raises(MalformedMessageError, match=f"^{field}: "):
        decode(json.dumps(document).encode())


@pytest.mark.parametrize("field", sorted(json.loads(bytes(GRANT))))
def test_a_missing_field_is_named(field: str) -> None:
    document = json.loads(bytes(GRANT))
    del document[field]
    with pytest.raises(MalformedMessageError, match=f"^{field}: "):
        decode(json.dumps(document).encode())


@pytest.mark.parametrize("octets", [b"NaN", b"[" * 5000, b'{"version": NaN}', b" " * 70000, b"\xff\xfe{}"])
def test_traps_of_json_are_refused(octets: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode(octets)


@pytest.mark.parametrize("value", [-1.0, 2e15, float("nan")])
def test_an_impossible_share_is_not_made(value: float) -> None:
    with pytest.raises(ValueError, match=r"^forward_bps: "):
        Share(forward_bps=value, back_bps=0.0, safe_bps=0.0, safe_back_bps=0.0, overhead_bytes=0)
