"""The same commands print the same documents as before: a change of the structure changes no figure."""

import json

import pytest

from helpers.golden import FOLDER, cases, differences, printed

CASES = cases()


def test_every_golden_file_belongs_to_a_command() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("extrapolate")])
def test_extrapolations_are_as_kept(name: str) -> None:
    _check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("extrapolate")])
def test_results_are_as_kept(name: str) -> None:
    _check(name)


def _check(name: str) -> None:
    kept = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads(printed(CASES[name]))
    assert list(differences(kept, found)) == []


def test_a_changed_figure_is_found() -> None:
    kept = {"a": [1.0, {"b": "x"}]}
    assert list(differences(kept, {"a": [1.0 + 1e-12, {"b": "x"}]})) == []
    assert list(differences(kept, {"a": [1.1, {"b": "x"}]})) == [".a[0]: 1.0 was kept, 1.1 was found"]
    assert list(differences(kept, {"a": [1.0, {"c": "x"}]})) == [
        ".a[1].b: 'x' was kept, None was found",
        ".a[1].c: None was kept, 'x' was found",
    ]
