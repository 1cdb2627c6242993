"""The keys of a study's tables."""

from bicoastal.experiments.scenario.keys import Section, name_key, names_key, other_key, text_key, whole_key
from bicoastal.experiments.scenario.scenario import DEFAULT_SCENARIO, MAX_SEEDS


class StudyKeys(Section):
    """[study]."""

    title = "[study]"
    meaning = "The name of the study, and what holds for all of its points."

    name = name_key("name", "The name of the study, in tables and files.")
    description = text_key("description", "What the study is about, for people.", default="")
    scenario = text_key("scenario", "The scenario: a bundled one, or a file beside this one.", default=DEFAULT_SCENARIO)
    transports = names_key("transports", "The transports that are compared.", default=(), said="the scenario's")
    backend = text_key("backend", "The backend that runs them.", default="sim")
    seeds = whole_key("seeds", "Runs of each transport at each point.", least=1, most=MAX_SEEDS, default=1)


class SetKeys(Section):
    """[set]."""

    title = "[set]"
    meaning = (
        "What is changed in the scenario at every point: keys as `--set` takes them, in quotation marks, such as "
        '`"scenario.iterations" = 10`.'
    )


class AxisKeys(Section):
    """[[axes]]."""

    title = "[[axes]]"
    meaning = "A key of the scenario that is varied. Every combination of the axes' values is a point of the study."

    key = text_key("key", "The key, as `--set` takes it.")
    label = text_key("label", "What people call the key.", said="the key")
    values = other_key("values", "list of values", "The values that it takes.", expected="a list of values")


SECTIONS: tuple[type[Section], ...] = (StudyKeys, SetKeys, AxisKeys)
