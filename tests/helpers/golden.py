"""Golden results: the documents that commands printed, kept in tests/golden, and the commands that print them again.

`PYTHONPATH=tests python -m helpers.golden [CASE …]` renews the files. Renew them only together with the reason for the
difference: they show that a change of the structure changes no figure.
"""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parents[1] / "golden"
SCENARIOS = (
    "backbone",
    "coast-to-coast",
    "isp-path",
    "lossless",
    "metro",
    "outage",
    "shallow-queue",
    "shared",
    "tail-loss",
)
TRANSPORTS = (
    *("reno", "cubic", "adaptive", "b4", "rdma-gbn", "rdma-sr", "mpquic", "quic", "quic-fec", "mpquic-fec"),
    *("kernel-reno", "kernel-cubic", "kernel-bbr", "kernel-mptcp", "kernel-adaptive", "kernel-b4"),
)
SEEDS = (1, 2)
ITERATIONS = {"outage": 7}  # the outage is in the sixth burst
FEW_ITERATIONS = 3
SETTINGS = {"backbone": ("--set", "jobs.shard=1 MB")}  # with its own payloads, a run takes minutes
DEPLOYMENTS = ("hundred-trillion", "hundred-trillion-moe", "gpt3-two-sites", "gpt3-sakuraone", "llama3-405b")
ONE_SITE = ("gpt3-sakuraone", "llama3-405b")  # there is no WAN to size
RELATIVE_TOLERANCE = 1e-9  # between platforms; on one platform the bytes are equal


def cases() -> Mapping[str, tuple[str, ...]]:
    """Return the arguments of each command by the name of its file."""
    chosen = [part for name in TRANSPORTS for part in ("--transport", name)]
    found: dict[str, tuple[str, ...]] = {}
    for scenario in SCENARIOS:
        iterations = str(ITERATIONS.get(scenario, FEW_ITERATIONS))
        for seed in SEEDS:
            found[f"compare-{scenario}-{seed}"] = (
                *("compare", scenario, "--seed", str(seed), "--iterations", iterations),
                *SETTINGS.get(scenario, ()),
                *chosen,
            )
    for deployment in DEPLOYMENTS:
        found[f"extrapolate-{deployment}"] = ("extrapolate", "--deployment", deployment)
        if deployment not in ONE_SITE:
            found[f"size-{deployment}"] = ("size", "--deployment", deployment)
    found["validate"] = ("validate",)
    return found


def printed(arguments: Sequence[str]) -> str:
    """Return the JSON document that a command prints. Raises CalledProcessError where it fails."""
    with TemporaryDirectory() as directory:
        out = ("--out", directory) if arguments[0] == "compare" else ()
        command = [sys.executable, "-m", "bicoastal", *arguments, *out, "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200).stdout


def differences(kept: object, found: object, where: str = "") -> Iterator[str]:
    """Yield a line for each value that differs; floats may differ by `RELATIVE_TOLERANCE`."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for key in [*kept, *(key for key in found if key not in kept)]:
            yield from differences(kept.get(key), found.get(key), f"{where}.{key}")
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        for index, (one, other) in enumerate(zip(kept, found, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif isinstance(kept, float) and isinstance(found, float):
        if not math.isclose(kept, found, rel_tol=RELATIVE_TOLERANCE):
            yield f"{where}: {kept!r} was kept, {found!r} was found"
    elif kept != found:
        yield f"{where}: {kept!r} was kept, {found!r} was found"


def main(names: Sequence[str]) -> None:
    """Renew the files of these cases, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for name, arguments in cases().items():
        if not names or name in names:
            document = json.loads(printed(arguments))
            text = json.dumps(document, indent=1, ensure_ascii=False)
            (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
