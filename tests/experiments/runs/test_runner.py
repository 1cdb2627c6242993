import re
import signal
import subprocess
import sys
from multiprocessing import active_children
from pathlib import Path

import pytest

from bicoastal.experiments.basics.interruption import TerminatedError
from bicoastal.experiments.runs.runner import _sentence, plan, run_all
from bicoastal.experiments.runs.store import FILE_NAME, Store
from bicoastal.experiments.runs.workers import without_interrupts
from bicoastal.experiments.scenario.scenario import load_scenario
from helpers.fake_backends import TRANSPORTS, WORLD

SCENARIO = load_scenario("coast-to-coast", TRANSPORTS)


def tasks(*transports, seeds=(0,)):
    return plan(SCENARIO, backend="plain", transports=transports, seeds=seeds)


def test_each_transport_runs_with_each_seed_and_the_first_seed_keeps_time_series():
    planned = tasks("reno", "cubic", seeds=range(4, 6))
    assert [(task.transport, task.spec.seed) for task in planned] == [
        ("reno", 4),
        ("reno", 5),
        ("cubic", 4),
        ("cubic", 5),
    ]
    assert [task.spec.sample_interval_s is not None for task in planned] == [True, False, True, False]
    assert len({task.key for task in planned}) == 4


def test_of_two_settings_of_one_key_the_later_holds():
    settings = ["scenario.iterations=3", "links.mtu=1500", "scenario.iterations=5"]
    (task,) = plan(SCENARIO, backend="plain", transports=["reno"], seeds=[0], settings=settings)
    assert task.settings == ("scenario.iterations=5", "links.mtu=1500")


def test_a_run_that_this_machine_cannot_hold_is_not_begun(tmp_path):
    """Scenarios are refused when they are read; multiplied by --scale they may still be too large."""
    (task,) = plan(SCENARIO, backend="plain", transports=["reno"], seeds=[0], scale=1e-4)
    with Store(tmp_path) as store:
        run_all([task], store, WORLD, workers=0)
        (run,) = store.runs()
    assert run.status == "unsupported"
    assert re.fullmatch(r"takes up to [\d.]+ TB of memory, and this machine has [\d.]+ [GT]B", run.reason)


def test_what_goes_wrong_is_a_row_and_the_others_go_on(tmp_path):
    planned = tasks("unfit", "reno", "crashing", "lost", "broken", "cubic")
    seen = []
    with Store(tmp_path) as store:
        run_all(planned, store, WORLD, workers=0, progress=lambda task, outcome: seen.append(outcome.status))
        runs = store.runs([task.key for task in planned])
        counts = [len(store.iterations(task.key)) for task in planned]
    assert [(run.transport, run.status, run.reason) for run in runs] == [
        ("unfit", "unsupported", "unfit needs real packets, which plain lacks"),
        ("reno", "ok", ""),
        ("crashing", "failed", "ZeroDivisionError: float division by zero"),
        ("lost", "failed", "the link's RTT is off by 3 ms"),
        ("broken", "failed", "iteration 19 did not complete"),
        ("cubic", "ok", ""),
    ]
    assert counts == [0, 20, 0, 0, 20, 20]
    assert seen == ["unsupported", "ok", "failed", "failed", "failed", "ok"]


def test_worker_processes_leave_the_same_store_as_this_one(tmp_path):
    planned = tasks("reno", "unfit", "adaptive", seeds=(0, 1))
    dumps = []
    for workers in (0, 2):
        with Store(tmp_path / str(workers)) as store:
            run_all(planned, store, WORLD, workers=workers)
            dumps.append([list(store.dump(table)[1]) for table in ("runs", "iterations", "flows", "samples")])
    assert dumps[0] == dumps[1]
    assert dumps[0][0]


def test_a_process_that_dies_costs_its_own_run_alone(tmp_path):
    planned = tasks("reno", "dying", "cubic", "adaptive")
    with Store(tmp_path) as store:
        run_all(planned, store, WORLD, workers=2)
        runs = store.runs([task.key for task in planned])
    assert [run.status for run in runs] == ["ok", "failed", "ok", "ok"]
    assert runs[1].reason == "the process that ran it died; it may have run out of memory"
    assert active_children() == []


INTERRUPTED = """
import os
import signal
import sys
from pathlib import Path
from multiprocessing import active_children
from bicoastal.experiments.runs.runner import plan, run_all
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.experiments.runs.store import Store
from helpers.fake_backends import TRANSPORTS, WORLD

if __name__ == "__main__":
    scenario = load_scenario("coast-to-coast", TRANSPORTS)
    tasks = plan(scenario, backend="plain", transports=["reno", "waiting", "cubic"], seeds=[0])
    with Store(Path(sys.argv[1])) as store:
        try:
            run_all(tasks, store, WORLD, workers=1, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT))
        except KeyboardInterrupt:
            print(len(active_children()), "left")
"""


def test_an_interruption_keeps_what_is_finished_and_leaves_no_worker(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    paths = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]
    ended = subprocess.run(
        [sys.executable, script, tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=50,
        env={"PYTHONPATH": ":".join(paths), "PATH": ""},
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 left\n", "", 0)
    assert (tmp_path / "out" / FILE_NAME).exists()
    with Store.existing(tmp_path / "out") as store:
        assert [run.transport for run in store.runs()] == ["reno"]


@pytest.mark.parametrize("workers", [0, 1])
def test_no_tasks_are_no_trouble(tmp_path, workers):
    with Store(tmp_path) as store:
        run_all([], store, WORLD, workers=workers)
        assert store.runs() == []


def test_no_exception_of_a_transport_ends_the_comparison(tmp_path):
    planned = tasks("leaving", "stopping", "mute", "odd", "reno")
    with Store(tmp_path) as store:
        run_all(planned, store, WORLD, workers=2)
        runs = store.runs([task.key for task in planned])
        assert store.notices(planned[3].key) == []
    assert [(run.status, run.reason) for run in runs] == [
        ("failed", "SystemExit: 0"),
        ("failed", "KeyboardInterrupt: no reason was given"),
        ("failed", "MuteError: its message cannot be read (RuntimeError)"),
        ("failed", "NoticeRecord.detail: 7 cannot be kept"),
        ("ok", ""),
    ]


@pytest.mark.parametrize(("transport", "error"), [("stopping", KeyboardInterrupt), ("ending", TerminatedError)])
def test_an_interruption_in_this_process_is_a_person_s_and_ends_all(tmp_path, transport, error):
    with Store(tmp_path) as store:
        with pytest.raises(error):
            run_all(tasks("reno", transport, "cubic"), store, WORLD, workers=0)
        assert [run.transport for run in store.runs()] == ["reno"]


def test_workers_cannot_be_interrupted_even_while_they_start():
    with without_interrupts():
        shown = subprocess.check_output(["/bin/grep", "SigBlk", "/proc/self/status"], text=True)
    assert int(shown.split()[1], 16) & (1 << (signal.SIGINT - 1))
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize(
    ("said", "told"), [("\x1b[31mred\x00", "\\x1b[31mred\\x00"), ("x" * 9999, "x" * 499 + "…"), ("\udcff", "\\udcff")]
)
def test_a_reason_is_short_and_harmless_to_a_terminal(said, told):
    assert _sentence(ValueError(said)) == told
