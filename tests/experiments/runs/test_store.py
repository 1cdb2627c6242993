import json
import re
import sqlite3
from dataclasses import replace

import pytest

from bicoastal.emulation.records import NoticeRecord
from bicoastal.experiments.runs.specifications import encode_specification
from bicoastal.experiments.runs.store import FILE_NAME, TABLES, RunRow, Store, StoreError, UnfitRecordError, run_key
from bicoastal.experiments.scenario.scenario import load_scenario
from helpers.fake_backends import TRANSPORTS, record

SPEC = load_scenario("coast-to-coast", TRANSPORTS).run_spec("reno", seed=3)


def row(key="0" * 16, **changes):
    values = {
        "key": key,
        "scenario": "coast-to-coast",
        "study": "loss",
        "settings": ("links.loss=0.001",),
        "labels": ("links.loss=loss per packet",),
        "source": "5" * 16,
        "backend": "plain",
        "transport": "reno",
        "parameters": ("hystart=false",),
        "jobs": ("job",),
        "seed": 3,
        "scale": 1.0,
        "setup": "6" * 16,
        "options": (("impairment", "netem"),),
        "notes": ("paths: one.",),
        "status": "ok",
        "reason": "",
        "array_note": "",
        "spec": SPEC,
    }
    return RunRow(**{**values, **changes})


def contents(path):
    with sqlite3.connect(path) as db:
        return "\n".join(db.iterdump())


def test_what_is_written_is_read_back(tmp_path):
    made = record(SPEC, [0.1, None, 0.2])
    with Store(tmp_path / "deep" / "down") as store:
        store.write(row(), made)
    with Store.existing(tmp_path / "deep" / "down") as store:
        assert store.runs() == [row()]
        assert tuple(store.iterations(row().key)) == made.iterations
        assert tuple(store.flows(row().key)) == made.flows
        assert tuple(store.summaries(row().key)) == made.summaries
        assert tuple(store.links(row().key)) == made.links
        assert tuple(store.notices(row().key)) == made.notices
        assert tuple(store.samples(row().key, 0.0, 1e9)) == made.samples
        assert tuple(store.queues(row().key, 0.0, 1e9)) == made.queues


def test_samples_are_read_by_time(tmp_path):
    made = record(SPEC, [0.1, 0.2])
    with Store(tmp_path) as store:
        store.write(row(), made)
        start_s = made.iterations[1].start_s
        found = store.samples(row().key, start_s, start_s + 0.2)
    assert found == [sample for sample in made.samples if sample.at_s >= start_s]
    assert len(found) == 11 * 8


def test_a_run_takes_the_place_of_the_one_with_its_key_and_of_no_other(tmp_path):
    with Store(tmp_path) as store:
        store.write(row("a" * 16), record(SPEC, [0.1] * 5))
        store.write(row("b" * 16), record(SPEC, [0.2] * 5))
        store.write(row("a" * 16, status="unsupported", reason="no"), None)
        assert [run.status for run in store.runs(["b" * 16, "a" * 16, "c" * 16])] == ["ok", "unsupported"]
        assert store.iterations("a" * 16) == []
        assert len(store.iterations("b" * 16)) == 5


def test_content_depends_neither_on_order_nor_on_history(tmp_path):
    with Store(tmp_path / "one") as store:
        store.write(row("a" * 16), record(SPEC, [0.1] * 3))
        store.write(row("b" * 16), record(SPEC, [0.2] * 3))
    with Store(tmp_path / "two") as store:
        store.write(row("b" * 16), record(SPEC, [0.7] * 9))
        store.write(row("b" * 16), record(SPEC, [0.2] * 3))
        store.write(row("a" * 16), record(SPEC, [0.1] * 3))
    assert contents(tmp_path / "one" / FILE_NAME) == contents(tmp_path / "two" / FILE_NAME)
    assert str(tmp_path) not in contents(tmp_path / "one" / FILE_NAME)


class _Torn:
    """A record whose flows cannot be read to their end, as when the process is killed there."""

    def __init__(self, made):
        self._made = made

    def __getattr__(self, name):
        if name == "flows":
            return self._half()
        return getattr(self._made, name)

    def _half(self):
        yield self._made.flows[0]
        raise KeyboardInterrupt


def test_a_run_is_there_whole_or_not_at_all(tmp_path):
    before = record(SPEC, [0.1] * 3)
    with Store(tmp_path) as store:
        store.write(row(), before)
        with pytest.raises(KeyboardInterrupt):
            store.write(row(), _Torn(record(SPEC, [0.9] * 3)))
        assert tuple(store.iterations(row().key)) == before.iterations
        store.write(row("b" * 16), before)  # and the store goes on working
    with Store.existing(tmp_path) as store:
        assert len(store.runs()) == 2
        assert tuple(store.flows(row().key)) == before.flows


def test_the_key_stands_for_everything_that_decides_a_run():
    keys = {
        run_key(SPEC, "sim"),
        run_key(SPEC, "netns"),
        run_key(replace(SPEC, seed=4), "sim"),
        run_key(replace(SPEC, time_limit_s=SPEC.time_limit_s * (1 + 2**-52)), "sim"),
        run_key(load_scenario("coast-to-coast", TRANSPORTS).run_spec("cubic", seed=3), "sim"),
        run_key(load_scenario("lossless", TRANSPORTS).run_spec("reno", seed=3), "sim"),
    }
    assert len(keys) == 6
    again = load_scenario("coast-to-coast", TRANSPORTS).run_spec("reno", seed=3)
    assert run_key(again, "sim") == run_key(SPEC, "sim")


def test_a_directory_without_results_is_refused(tmp_path):
    with pytest.raises(StoreError, match="holds no results"):
        Store.existing(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"file: is no directory for results \(File exists\)$"):
        Store(tmp_path / "file")
    with pytest.raises(StoreError, match="is no directory for results"):
        Store(tmp_path / "file" / "below")


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path):
    (tmp_path / FILE_NAME).write_text("my diary, which is longer than a header of SQLite would be" * 20)
    with pytest.raises(StoreError, match=r"results.sqlite: file is not a database$"):
        Store(tmp_path)
    assert (tmp_path / FILE_NAME).read_text().startswith("my diary")


def test_somebody_elses_database_is_refused_and_kept(tmp_path):
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("CREATE TABLE runs (mine TEXT)")
    with pytest.raises(StoreError, match="is a database, but not one of bicoastal's"):
        Store(tmp_path)
    assert "mine" in contents(tmp_path / FILE_NAME)


def test_a_specification_that_was_spoilt_is_one_sentence_of_the_store(tmp_path):
    with Store(tmp_path) as store:
        store.write(row(), None)
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("UPDATE runs SET spec = replace(spec, 'Bernoulli', 'os.system')")
    with Store.existing(tmp_path) as store, pytest.raises(StoreError) as refused:
        store.runs()
    assert "run 0000000000000000 cannot be read: topology.links.plane0.loss: 'os.system' is not one of" in str(
        refused.value
    )


def test_an_export_of_runs_has_the_specification_and_what_people_read_of_it(tmp_path):
    with Store(tmp_path) as store:
        store.write(row(), None)
        columns, rows = store.dump("runs")
        ((*_, spec, conditions),) = rows
    assert columns[-2:] == ["spec", "conditions"]
    assert spec == encode_specification(SPEC)
    assert {"links.rtt=60 ms", "impairment=netem"} <= set(json.loads(conditions))


def test_another_layout_is_refused(tmp_path):
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="has layout 99, this program reads and writes layout 4"):
        Store(tmp_path)


def test_a_dump_has_a_column_for_each_field(tmp_path):
    with Store(tmp_path) as store:
        store.write(row(), record(SPEC, [0.1]))
        for table in TABLES:
            columns, rows = store.dump(table)
            assert all(len(values) == len(columns) for values in rows)
        columns, rows = store.dump("iterations")
        (values,) = rows
        assert dict(zip(columns, values, strict=True))["completion_s"] == 0.1
        with pytest.raises(ValueError, match=r"^table: 'x; DROP TABLE runs' is not one of runs, iterations, "):
            store.dump("x; DROP TABLE runs")


def test_two_that_open_a_new_directory_at_once_both_get_the_store(tmp_path, monkeypatch):
    create = Store._create

    def late(self):
        monkeypatch.setattr(Store, "_create", create)
        Store(tmp_path).close()  # another process, between this one's look and its lock
        create(self)

    monkeypatch.setattr(Store, "_create", late)
    with Store(tmp_path) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"detail": {}}, "NoticeRecord.detail: {} cannot be kept"),
        ({"at_s": "soon"}, "NoticeRecord.at_s: 'soon' cannot be kept"),
        ({"kind": 2**70}, "NoticeRecord.kind: 1180591620717411303424 cannot be kept"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_and_what_stood_there_stays(tmp_path, change, sentence):
    good = NoticeRecord(source="x", at_s=0.0, kind="k", detail="\udcff")
    with Store(tmp_path) as store:
        store.write(row(), record(SPEC, [0.1], notices=(good,)))
        with pytest.raises(UnfitRecordError, match=re.escape(sentence)):
            store.write(row(), record(SPEC, [0.1], notices=(replace(good, **change),)))
        assert [notice.detail for notice in store.notices(row().key)] == ["\\udcff"]
