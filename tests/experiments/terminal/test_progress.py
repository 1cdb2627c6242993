"""What a person at a terminal sees of runs under way."""

import io

from rich.console import Console

from bicoastal.experiments.runs.runner import Outcome, plan
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.experiments.terminal import progress
from helpers.fake_backends import TRANSPORTS

SCENARIO = load_scenario("coast-to-coast", TRANSPORTS)


def test_a_terminal_shows_what_is_done_how_long_it_took_and_what_is_left(monkeypatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **options: terminal)
    tasks = plan(SCENARIO, backend="plain", transports=["reno"], seeds=range(3))
    with progress.reporter(tasks) as report:
        report(tasks[0], Outcome(status="ok", reason=""))
        report(tasks[1], Outcome(status="failed", reason="it did [not] connect"))
    shown = screen.getvalue()
    assert "reno, seed 1: failed, it did [not] connect\n" in shown
    last = shown[shown.rindex("done: reno, seed 1") :]
    assert "2/3 runs, 0:00:00 elapsed, " in last
    assert " left" in last
