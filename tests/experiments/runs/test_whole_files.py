"""Files are there whole or not at all, and what cannot be written is told in a sentence."""

import errno
from functools import partialmethod
from pathlib import Path

import pytest

from bicoastal.experiments import cli
from bicoastal.experiments.runs.store import StoreError
from bicoastal.experiments.runs.whole_files import written_whole


def test_what_was_there_stays_until_the_new_file_is_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), written_whole(path) as unfinished:
        unfinished.write_text(str(1 / unfinished.write_text("")))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "old")]
    with written_whole(path) as unfinished:
        unfinished.write_text("new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "new")]


@pytest.fixture
def read_only(monkeypatch):
    """Let no unfinished file be made or removed, as on a medium that was mounted to be read."""
    for name in ("unlink", "write_text", "open"):
        monkeypatch.setattr(Path, name, partialmethod(_refuse_unfinished, getattr(Path, name)))


def _refuse_unfinished(self, usual, *arguments, **options):
    if self.suffix == ".unfinished":
        raise OSError(errno.EROFS, "Read-only file system", str(self))
    return usual(self, *arguments, **options)


@pytest.mark.usefixtures("read_only")
def test_on_a_read_only_medium_there_is_one_sentence(tmp_path):
    with (
        pytest.raises(StoreError, match=r"a.csv: cannot be written \(Read-only file system\)$"),
        written_whole(tmp_path / "a.csv") as unfinished,
        unfinished.open("w"),
    ):
        pass


@pytest.mark.usefixtures("plain_world", "read_only")
@pytest.mark.parametrize(("command", "file"), [("report", "report.html"), ("export", "runs.csv")])
def test_commands_say_it_too(command, file, capsys):
    assert cli.main(["compare", "--backend", "plain", "--transport", "unfit", "--out", "x"]) == 3
    capsys.readouterr()
    assert cli.main([command, "x"]) == 2
    assert capsys.readouterr() == ("", f"bicoastal: x/{file}: cannot be written (Read-only file system)\n")
