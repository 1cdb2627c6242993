import csv
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bicoastal.experiments import cli
from bicoastal.experiments.commands import compare as comparing
from bicoastal.experiments.commands.listing import to_lines
from bicoastal.experiments.runs.store import Store, StoreError
from bicoastal.experiments.terminal.pictures import OVERVIEW, SERIES
from bicoastal.interface import runs

pytestmark = pytest.mark.usefixtures("plain_world")

ROOT = Path(__file__).parents[3]


def compare(*arguments):
    return cli.main(["compare", "--backend", "plain", *arguments])


def test_compare_prints_a_table_and_writes_store_and_pictures(capsys, tmp_path):
    assert compare("--transport", "reno", "--transport", "adaptive", "--iterations", "4") == 0
    printed = capsys.readouterr()
    assert "coast-to-coast in plain" in printed.out
    assert "\npaths:      4 × 5 Gbit/s at RTT 60 ms and loss 1e-4; shard: 57.13 MB in each" in printed.out
    assert "\nwritten:    out/coast-to-coast/results.sqlite, out/coast-to-coast/overview.png" in printed.out
    lines = [line.split(" (") for line in printed.err.splitlines()]  # either worker may be the first to end
    assert sorted(name for name, _ in lines) == ["adaptive, seed 0: ok", "reno, seed 0: ok"]
    assert [count for _, count in lines] == ["1 of 2)", "2 of 2)"]
    files = {path.name for path in (tmp_path / "out" / "coast-to-coast").iterdir()}
    assert files == {"results.sqlite", OVERVIEW, SERIES}


def test_json_is_one_document_and_nothing_else_and_the_same_every_time(capsys, tmp_path):
    texts = []
    for name in ("one", "two"):
        assert compare("--json", "--seeds", "2", "--iterations", "3", "--out", str(tmp_path / name)) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert [(t["name"], t["n"]) for t in document["transports"]] == [("reno", 6), ("cubic", 6), ("adaptive", 6)]
    assert str(tmp_path) not in texts[0]


def test_results_of_another_scenario_in_the_directory_do_not_matter(capsys):
    assert compare("lossless", "--out", "here", "--transport", "reno", "--seeds", "2") == 0
    assert compare("metro", "--out", "here", "--transport", "reno", "--json") == 0
    document = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    assert (document["scenario"], document["transports"][0]["n"]) == ("metro", 20)


@pytest.mark.parametrize(
    ("transports", "code"),
    [
        (["reno"], 0),
        (["reno", "unfit"], 0),
        (["unfit"], 3),
        (["reno", "broken"], 1),
        (["unfit", "crashing"], 1),
    ],
)
def test_the_exit_code_tells_how_it_went(transports, code, capsys):
    options = [part for name in transports for part in ("--transport", name)]
    assert compare("--iterations", "2", "--json", *options) == code
    assert [t["name"] for t in json.loads(capsys.readouterr().out)["transports"]] == transports


def test_changes_reach_the_run(capsys):
    assert compare("--transport", "reno", "--set", "scenario.iterations=5", "--set", "reno.gain=2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["transports"][0]["n"] == 5


def test_a_transport_may_stand_in_any_module(capsys):
    assert (
        compare(
            "--transport", "helpers.fake_backends:ELSEWHERE", "--transport", "helpers.fake_backends:ELSEWHERE", "--json"
        )
        == 0
    )
    assert [t["name"] for t in json.loads(capsys.readouterr().out)["transports"]] == ["helpers.fake_backends:ELSEWHERE"]


BAD = {
    "unknown scenario": (["coast"], "there is no scenario 'coast'; did you mean 'coast-to-coast'?"),
    "missing file": (["none.toml"], "none.toml: there is no such file"),
    "unknown transport": (["--transport", "renno"], "--transport: there is no transport 'renno'; did you mean 'reno'?"),
    "missing module": (
        ["--transport", "nowhere:SPEC"],
        "--transport: transport 'nowhere:SPEC' cannot be loaded: No module named 'nowhere'",
    ),
    "no transport": (
        ["--transport", "helpers.fake_backends:BOUND_S"],
        "--transport: transport 'helpers.fake_backends:BOUND_S' is not a TransportSpec",
    ),
    "unknown backend": (["--backend", "netns"], "--backend: there is no backend 'netns'; there are plain"),
    "no iterations": (["--iterations", "0"], "--iterations: 0 is not between 1 and 1000000"),
    "iterations in words": (["--iterations", "many"], "argument --iterations: invalid int value: 'many'"),
    "iterations in a very long word": (
        ["--iterations", "x" * 5000],
        f"argument --iterations: invalid int value: '{'x' * 58}…",
    ),
    "scenario without a name": ([""], "there is no scenario ''; there are backbone, coast-to-coast"),
    "scenario with a very long name": (
        ["x" * 5000],
        f"there is no scenario '{'x' * 58}…; there are backbone, coast-to-coast",
    ),
    "directory without a name": (["--out", ""], "argument --out: '' names no directory"),
    "negative seed": (["--seed", "-1"], f"--seed: -1 is not between 0 and {2**62}"),
    "no seeds": (["--seeds", "0"], "--seeds: 0 is not between 1 and 100000"),
    "seeds beyond the last": (["--seed", str(2**62), "--seeds", "2"], f"--seeds: seed {2**62 + 1} would be more than"),
    "bad change": (["--set", "links[1].loss=2"], "--set links[1].loss: 2 is not a probability"),
    "out is a file": (["--out", "file"], "file: is no directory for results (File exists)"),
    "unknown option": (["--speed=2"], "unrecognized arguments: --speed=2"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD)
def test_bad_input_gets_one_sentence_and_leaves_nothing(arguments, sentence, capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    assert compare(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"bicoastal: {sentence}")
    assert printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("taken", [OVERVIEW, SERIES, "results.sqlite-journal"])
def test_what_will_not_be_writable_is_told_before_anything_runs(taken, capsys, tmp_path):
    (tmp_path / "here" / taken).mkdir(parents=True)
    assert compare("--out", "here", "--iterations", "2") == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith("bicoastal: here/")
    (tmp_path / "here" / taken).rmdir()
    with Store(tmp_path / "here") as store:
        assert store.runs() == []


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_picture_that_fails_takes_nothing_of_the_table_along(form, monkeypatch, capsys):
    def full(*_arguments):
        raise StoreError("here/overview.png: cannot be written (No space left on device)")

    monkeypatch.setattr(comparing, "_draw", full)
    assert compare("--out", "here", "--iterations", "2", *form) == 2
    printed = capsys.readouterr()
    assert "completion" in printed.out
    assert printed.err.endswith("bicoastal: here/overview.png: cannot be written (No space left on device)\n")


@pytest.mark.parametrize("arguments", [[], ["sizes"], ["list"], ["list", "colours"], ["export"], ["export", "none"]])
def test_a_command_that_is_not_there_gets_one_sentence(arguments, capsys):
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bicoastal: ")
    assert printed.err.count("\n") == 1


def test_version_and_help(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bicoastal {version('bicoastal')}\n"
    assert cli.main(["compare", "--help"]) == 0
    assert "--set KEY=VALUE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("scenarios", "metro           The coast-to-coast job between neighbours: 2 ms RTT"),
        ("transports", "adaptive  adaptive, for tests"),
        ("backends", "plain  A world in which the transport's name decides what happens; seeds and iterations make it"),
        ("deployments", "hundred-trillion      838,800 GPU pairs, 57.13 MB for each to send across."),
    ],
)
def test_list_shows_names_and_descriptions(what, line, capsys):
    assert cli.main(["list", what]) == 0
    assert any(found.startswith(line) for found in capsys.readouterr().out.splitlines())


def test_list_alone_says_what_there_is_to_list(capsys):
    assert cli.main(["list"]) == 2
    assert capsys.readouterr() == (
        "",
        "bicoastal: list: expected what to list, one of transports, backends, scenarios, studies, deployments\n",
    )


def test_a_list_wraps_at_the_edge_of_a_terminal_and_nowhere_else():
    rows = [("a", "one two three four five six seven eight"), ("longer", "")]
    assert to_lines(rows, None) == ["a       one two three four five six seven eight", "longer"]
    assert to_lines(rows, 30) == ["a       one two three four", "        five six seven eight", "longer"]


def test_export_writes_a_table_for_each_kind_of_row(capsys):
    assert compare("--transport", "reno", "--iterations", "3", "--out", "here") == 0
    capsys.readouterr()
    assert cli.main(["export", "here", "--format", "csv"]) == 0
    files = capsys.readouterr().out.split()
    assert files[:2] == ["here/runs.csv", "here/iterations.csv"]
    assert not list(Path("here").glob("*.unfinished"))
    with open("here/iterations.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["completion_s"]) for row in rows] == pytest.approx([0.3, 0.3, 0.35])
    with open("here/notices.csv", newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["detail"] == "it's a “test”; really"


def test_an_interruption_is_told_in_one_line(monkeypatch, capsys):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "run_all", interrupted)
    assert compare() == 130
    assert capsys.readouterr().err.splitlines()[-1] == "bicoastal: interrupted; what was finished is kept"


def test_a_reader_that_goes_away_is_no_trouble():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-m", "bicoastal", "list", "scenarios"],
            stdout=closed,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            timeout=50,
            check=False,
        )
    assert (ended.stderr, ended.returncode) == (b"", 141)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def x(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_a_module_that_raises_when_imported_gets_one_sentence(module, said, capsys, tmp_path, monkeypatch):
    (tmp_path / "bad_module.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    assert compare("--transport", "bad_module:SPEC") == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"bicoastal: --transport: transport 'bad_module:SPEC' cannot be loaded: {said}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_what_a_transport_prints_stays_out_of_the_document(capsys, tmp_path, monkeypatch):
    (tmp_path / "chatty.py").write_text("from helpers.fake_backends import ELSEWHERE\nprint('hello')")
    monkeypatch.syspath_prepend(tmp_path)
    assert compare("--transport", "chatty:ELSEWHERE", "--iterations", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["transports"][0]["n"] == 2
    sys.modules.pop("chatty")


def as_process(command, **environment):
    """Run a command of this interpreter's by the shell, whose redirections close and fill streams."""
    return subprocess.run(
        ["/bin/sh", "-c", command.replace("bicoastal", f"{sys.executable} -m bicoastal")],
        capture_output=True,
        cwd=ROOT,
        timeout=50,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize("command", ["list scenarios", "validate", "--help"])
def test_stdout_that_is_full_gets_one_sentence(command):
    ended = as_process(f"bicoastal {command} >/dev/full")
    sentence = b"bicoastal: standard output cannot be written (No space left on device)\n"
    assert (ended.stderr, ended.returncode) == (sentence, 2)


@pytest.mark.parametrize("command", ["list scenarios", "--version"])
def test_stdout_that_is_closed_gets_one_sentence_too(command):
    ended = as_process(f"bicoastal {command} >&-")
    sentence = b"bicoastal: standard output cannot be written (Bad file descriptor)\n"
    assert (ended.stderr, ended.returncode) == (sentence, 2)


@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-"])
def test_other_streams_that_are_closed_are_no_trouble(closed):
    ended = as_process(f"bicoastal list deployments {closed}")
    assert (ended.stderr, ended.returncode) == (b"", 0)
    assert b"hundred-trillion" in ended.stdout


def test_workers_run_though_the_streams_are_closed(tmp_path):
    ended = as_process(f"bicoastal compare metro --transport reno --iterations 1 --out {tmp_path} >&- 2>&- <&-")
    assert ended.returncode == 2  # there is no table, but what it would have been made of
    with Store.existing(tmp_path) as store:
        assert [run.status for run in store.runs()] == ["ok"]


def test_no_line_of_a_table_ends_in_blanks():
    ended = as_process("bicoastal validate", COLUMNS="80")
    lines = ended.stdout.decode().splitlines()
    assert len(lines) > 50
    assert [line for line in lines if line != line.rstrip() or len(line) > 80] == []


def test_a_terminal_without_unicode_shows_question_marks():
    ended = as_process("bicoastal compare --help", PYTHONIOENCODING="ascii")
    assert (ended.stderr, ended.returncode) == (b"", 0)
    assert b"adaptive.KEY=?" in ended.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_run_keeps_what_is_finished_and_says_so(number, tmp_path):
    command = ["compare", "lossless", "--transport", "reno", "--iterations", "100000", "--out", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "bicoastal", *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # the tests may run under nohup  # noqa: PLW1509
    ) as process:
        try:
            while not (tmp_path / "results.sqlite").exists():
                assert process.poll() is None
            process.send_signal(number)
            _, errors = process.communicate(timeout=50)
        finally:
            process.kill()
    assert errors == "bicoastal: terminated; what was finished is kept\n"
    assert process.returncode == 128 + number


def test_an_interruption_while_modules_are_imported_is_one_like_any_other(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys\n"
        "from bicoastal.experiments.cli import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'numpy':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['bicoastal', 'list', 'scenarios']\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, timeout=50, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert (ended.stdout, ended.returncode) == (b"", 130)
    assert ended.stderr == b"bicoastal: interrupted; what was finished is kept\n"


def test_the_way_in_imports_nothing_slow():
    program = (
        "import sys, bicoastal.experiments.cli; print({'numpy', 'rich', 'matplotlib', 'sqlite3'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout == "set()\n"


def test_who_has_no_home_gets_pictures_and_no_lecture(tmp_path):
    (tmp_path / "file").write_text("x")
    out = tmp_path / "out"
    arguments = f"compare metro --transport reno --iterations 1 --out {out}"
    ended = as_process(f"bicoastal {arguments}", HOME=str(tmp_path / "file" / "home"))
    assert (ended.stderr, ended.returncode) == (b"reno, seed 0: ok (1 of 1)\n", 0)
    assert (out / OVERVIEW).exists()
