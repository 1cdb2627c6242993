"""The table [tunnels]: which paths are found, and what is refused in one sentence."""

import pytest

from helpers.scenario_text import load, sentence_of

SQUARE = """
[scenario]
name = "square"
sites = ["a", "b", "c", "d"]

[[links]]
name = "ab"
between = ["a", "b"]
rate = "1 Gbit/s"
delay = "10 ms"

[[links]]
name = "bd"
between = ["b", "d"]
rate = "1 Gbit/s"
delay = "10 ms"

[[links]]
name = "ac"
between = ["a", "c"]
rate = "1 Gbit/s"
delay = "14 ms"

[[links]]
name = "cd"
between = ["c", "d"]
rate = "1 Gbit/s"
delay = "14 ms"

[tunnels]
count = 2

[[jobs]]
name = "there"
shard = "1 MB"
sites = ["a", "d"]
"""
BACK = '[[jobs]]\nname = "back"\nshard = "1 MB"\nsites = ["d", "a"]\n'


def ways(text: str) -> dict[str, tuple[str, ...]]:
    return {name: path.links for name, path in load(text).topology.paths.items()}


def test_a_job_gets_the_paths_of_least_delay() -> None:
    assert ways(SQUARE) == {"a-d-1": ("ab", "bd"), "a-d-2": ("ac", "cd")}
    assert ways(SQUARE.replace("count = 2", "count = 1")) == {"a-d-1": ("ab", "bd")}


def test_jobs_between_the_same_sites_share_their_paths_in_both_directions() -> None:
    there, back = load(SQUARE + BACK).jobs
    assert there.paths == back.paths == ("a-d-1", "a-d-2")


def test_a_listed_path_stands_beside_those_that_are_found_and_is_not_found_twice() -> None:
    listed = '[[paths]]\nname = "north"\nlinks = ["ab", "bd"]\n'
    assert ways(SQUARE + listed) == {"north": ("ab", "bd"), "a-d-2": ("ac", "cd")}
    assert load(SQUARE + listed).jobs[0].paths == ("north", "a-d-2")


def test_a_job_that_lists_its_paths_keeps_them() -> None:
    text = SQUARE.replace('shard = "1 MB"', 'shard = "1 MB"\npaths = ["north"]')
    assert ways(text + '[[paths]]\nname = "north"\nlinks = ["ab", "bd"]\n') == {"north": ("ab", "bd")}


def test_background_traffic_gets_paths_too() -> None:
    flow = '[[background]]\ntransport = "reno"\nmessage = "1 MB"\nfrom = "b"\nto = "c"\n'
    assert ways(SQUARE + flow)["b-c-1"] == ("ab", "ac")


def test_the_search_around_bottlenecks_leaves_a_link_to_the_job_that_has_no_way_as_short() -> None:
    # Both jobs prefer the link bd. For the job from a, the way over c is longer by 8 ms only.
    text = SQUARE.replace("count = 2", 'count = 1\nsearch = "bottlenecks"')
    only = '[[jobs]]\nname = "only"\nshard = "1 MB"\nsites = ["b", "d"]\n'
    assert ways(text + only)["a-d-1"] == ("ab", "bd")
    assert ways(text.replace("count = 1", "count = 1\nrounds = 2") + only)["a-d-1"] == ("ac", "cd")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("count = 2", "count = 0", "tunnels.count: 0 is not between 1 and 64"),
        ("count = 2", 'search = "widest"', "tunnels.search: 'widest' is not one of cheapest, bottlenecks"),
        ("count = 2", "rounds = 2", 'tunnels.rounds: has a meaning with search = "bottlenecks" only'),
        ("count = 2", "number = 2", "tunnels.number: is not a known key"),
        ('"c", "d"]\n\n', '"c", "d", "e"]\n\n', "tunnels: no links lead from a to e"),
    ],
)
def test_what_cannot_be_searched_is_refused(old: str, new: str, sentence: str) -> None:
    text = SQUARE.replace(old, new, 1)
    if "lead" in sentence:
        text = text.replace('sites = ["a", "d"]', 'sites = ["a", "e"]')
    assert sentence_of(text).endswith(sentence)
