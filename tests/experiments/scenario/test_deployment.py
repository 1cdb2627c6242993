import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from bicoastal.experiments.scenario.deployment import read_deployment
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.wan.deployment import Deployment

FOLDER = Path(__file__).parents[3] / "experiments" / "deployments"
FILE = FOLDER / "hundred-trillion.toml"


@pytest.fixture
def mapping() -> dict[str, object]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


@pytest.fixture
def paper(mapping: dict[str, object]) -> Deployment:
    return read_deployment(mapping, "mine.toml")


def test_the_bundled_deployment_has_the_published_inputs(paper: Deployment) -> None:
    model = paper.model
    assert (model.layers, model.hidden, model.sequence, model.vocabulary) == (134, 244224, 32000, 256000)
    assert (paper.tensor, paper.pipeline, paper.data, paper.replicas_per_rack) == (18, 134, 696, 4)
    assert (paper.scale_up_Bps, paper.scale_out_bps, paper.planes) == (1.8e12, 800e9, 4)
    assert paper.wan_rtt_s == 0.060
    assert "2407.12819" in paper.source


def test_the_published_figures_follow_from_the_inputs(paper: Deployment) -> None:
    # arXiv 2407.12819, to the digits it prints
    assert paper.model.parameters == pytest.approx(96.02e12, rel=2e-4)
    # the third stage is the wide-area one
    published_s = {"1 rack": 16.57e-3, "2 datacenter": 98.27e-3, "4 datacenter": 49.14e-3, "5 rack": 8.3e-3}
    last_digits_s = (0.005e-3, 0.005e-3, 0.01e-3, 0.05e-3)
    times_s = {stage.name: stage.time_s for stage in paper.local_stages}
    assert list(times_s) == list(published_s)
    for (name, time_s), last_digit_s in zip(times_s.items(), last_digits_s, strict=True):
        assert time_s == pytest.approx(published_s[name], abs=last_digit_s)
    assert paper.local_s == pytest.approx(sum(published_s.values()), abs=sum(last_digits_s))


def test_latencies_of_the_fabric_are_paid_at_each_step_of_a_ring(paper: Deployment, mapping: dict[str, dict]) -> None:
    mapping["plant"] |= {"scale_up_latency": "1 us", "scale_out_latency": "10 us"}
    slower = read_deployment(mapping, "mine.toml")
    # all-reduce and all-gather, three passes: 3 steps in a rack of 4 replicas, 86 in a ring of 87 racks
    assert slower.local_s - paper.local_s == pytest.approx(3 * 3 * 1e-6 + 3 * 86 * 10e-6)


def test_the_shard_of_one_gpu_pair_is_57_13_megabytes(paper: Deployment) -> None:
    assert paper.racks_per_layer_and_site == 87
    assert paper.gradient_bytes == pytest.approx(19.88e9, rel=1e-3)
    assert paper.wide_area_shard_bytes == pytest.approx(57.13e6, abs=0.005e6)


def test_a_step_has_as_many_messages_as_there_are_gpus(paper: Deployment) -> None:
    assert paper.gpu_pairs == 838_800
    assert paper.messages_per_step == 1_677_600
    assert paper.messages_per_layer == 12_528
    assert paper.racks_needed == 23_316  # 18 * 134 * 696 GPUs in racks of 72; the paper rounds to 23,300


def test_one_stage_that_is_first_and_last_has_both_embeddings(paper: Deployment) -> None:
    matrix = 256_000 * 244_224 / 18
    alone = replace(paper, pipeline=1, racks=None)
    layers = alone.shared_parameters_per_gpu
    assert alone.parameters_per_gpu == layers + 2 * matrix
    assert replace(alone, model=replace(paper.model, embeddings=1)).parameters_per_gpu == layers + matrix
    assert paper.parameters_per_gpu == paper.shared_parameters_per_gpu + matrix


def test_several_layers_in_a_stage_make_a_larger_shard(paper: Deployment, mapping: dict[str, dict]) -> None:
    mapping["parallelism"]["pipeline"] = 67
    halved = read_deployment(mapping, "mine.toml")
    assert halved.wide_area_shard_bytes == pytest.approx(2 * paper.wide_area_shard_bytes, abs=1)
    assert halved.model.parameters == paper.model.parameters


def test_racks_follow_from_the_parallelism_unless_they_are_given(mapping: dict[str, dict]) -> None:
    del mapping["plant"]["racks"]
    assert read_deployment(mapping, "mine.toml").messages_per_step == 18 * 134 * 696


def test_a_plant_may_hold_more_than_the_parallelism_takes(mapping: dict[str, dict]) -> None:
    mapping["plant"]["racks"] = 30_000
    assert read_deployment(mapping, "mine.toml").gpus == 18 * 134 * 696


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("model", "layers", 0, "model.layers: 0 is not a whole number"),
        ("model", "layers", "many", "model.layers: 'many' is not an integer"),
        ("model", "layer", 134, "model.layer: is not a known key; did you mean 'layers'"),
        ("model", "kv_heads", 100, "model.kv_heads: 100 do not divide 256 heads"),
        ("model", "ffn_matrices", 4, "model.ffn_matrices: 4 is neither 2 nor"),
        ("model", "embeddings", 3, "model.embeddings: 3 is neither 1"),
        ("model", "experts_per_token", 2, "model.experts_per_token: 2 is more than 1 experts"),
        ("model", "dropout", 1, "model.dropout: 1 is not true or false"),
        ("precision", "gradient_messages", "half", "precision.gradient_messages: 'half' is not a number"),
        ("precision", "weights", -1, "precision.weights: -1 is not a number from 1e-15 to "),
        ("gpu", "memory", "192 Gb", "gpu.memory: '192 Gb' is not a size"),
        ("gpu", "efficiency", 1.1, "gpu.efficiency: 1.1 is more than 1"),
        ("parallelism", "pipeline", 135, "parallelism.pipeline: 135 stages are more than 134 layers"),
        ("parallelism", "zero", 3, "parallelism.zero: 3 is not 0, 1 or 2"),
        ("parallelism", "expert", 4, "parallelism.expert: 4 replicas do not divide 1 experts"),
        (
            "parallelism",
            "recomputation",
            "some",
            "parallelism.recomputation: 'some' is not one of none, selective, full",
        ),
        ("parallelism", "recomputation", 1, "parallelism.recomputation: 1 is not text"),
        ("parallelism", "data", 700, "parallelism.data: 700 replicas do not fill whole racks"),
        ("parallelism", "tensor", 16, "plant.gpus_per_rack: 72 is not tensor"),
        ("plant", "sites", 3, "plant.sites: 3 is neither 1 nor 2"),
        ("plant", "racks", True, "plant.racks: true is not an integer"),
        (
            "plant",
            "racks",
            1,
            r"plant.racks: 1 of 72 hold 72 GPUs, and tensor \* pipeline \* data, 18 \* 134 \* 696, take 1,678,752",
        ),
        ("plant", "racks", 23_292, "plant.racks: 23,292 of 72 hold 1,677,024 GPUs"),
        ("plant", "scale_out", "800 G", "plant.scale_out: '800 G' is not a rate"),
        ("plant", "scale_up", 1.8e12, "plant.scale_up: 1800000000000.0 is not a rate such as"),
        ("plant", "scale_up", "0", "plant.scale_up: '0' is not more than zero"),
        ("plant", "wan_rtt", "60", "plant.wan_rtt: '60' has no unit"),
        ("plant", "wan_rtt", "0 ms", "plant.wan_rtt: 0.0 is not a finite number above zero"),
        ("plant", "planes", 10**400, "plant.planes: an integer of 1329 bits is not between"),
        ("gpu", "flops", 1e300, r"gpu.flops: 1e\+300 is not a number from 1e-15 to 1e\+24"),
        ("gpu", "flops", 10**400, r"gpu.flops: an integer of 1329 bits is not a number"),
        ("gpu", "flops", 1e-300, "gpu.flops: 1e-300 is not a number"),
        ("plant", "wan", "1e-300 bit/s", "plant.wan: '1e-300 bit/s' is too small"),
        ("plant", "wan", "0 Gbit/s", "plant.wan: '0 Gbit/s' is not more than zero"),
        ("plant", "scale_up_latency", 1e-6, "plant.scale_up_latency: 1e-06 is not a time such as"),
        ("plant", "scale_out_latency", "-1 us", "plant.scale_out_latency: '-1 us' is negative"),
    ],
)
def test_a_bad_value_is_refused_by_the_key_in_the_file(
    mapping: dict[str, dict], section: str, key: str, value: object, message: str
) -> None:
    mapping[section][key] = value
    with pytest.raises(ScenarioError, match="^mine.toml: " + message):
        read_deployment(mapping, "mine.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": "x"}, "nmae: is not a known key; did you mean 'name'"),
        ({"name": 3}, "name: 3 is not text"),
        ({"name": ""}, "name: '' is not a name"),
        ({"plant": 3}, "plant: 3 is not a table"),
        ({"plant": {}}, "plant.gpus_per_rack: is missing; expected an integer"),
        ({"model": {}}, "model.layers: is missing; expected an integer"),
    ],
)
def test_a_bad_table_is_refused(mapping: dict[str, object], change: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match="^mine.toml: " + message):
        read_deployment(mapping | change, "mine.toml")


def test_a_missing_rate_has_the_name_of_its_key(mapping: dict[str, dict]) -> None:
    del mapping["plant"]["scale_up"]
    with pytest.raises(ScenarioError, match=r"^mine.toml: plant\.scale_up: is missing; expected a rate such as"):
        read_deployment(mapping, "mine.toml")


# -- the other bundled ones -------------------------------------------------------------------------------------------


def bundled(name: str) -> dict[str, dict]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def test_the_bundled_models_have_their_published_sizes() -> None:
    sizes = {"gpt3-sakuraone": 175e9, "llama3-405b": 405.85e9}  # arXiv 2005.14165 and 2407.21783
    for name, parameters in sizes.items():
        assert read_deployment(bundled(name), name).model.parameters == pytest.approx(parameters, rel=3e-3)


def test_at_one_site_nothing_crosses_and_at_two_half_of_the_replicas_are_at_each() -> None:
    one, two = (read_deployment(bundled(name), name) for name in ("gpt3-sakuraone", "gpt3-two-sites"))
    assert (one.gpus, one.gpu_pairs, one.messages_per_step, one.wide_area_shard_bytes) == (768, 0, 0, 0)
    assert (two.gpus, two.gpu_pairs, two.messages_per_step, two.messages_per_layer) == (768, 384, 768, 96)
    # 1.8e9 parameters of 8 layers of 12 h^2, a share of 1 / 8, over 6 nodes, 4 bytes each
    assert two.wide_area_shard_bytes == pytest.approx(12 * 12288**2 * 12 / 8 / 6 * 4, abs=1)


def test_of_two_trips_the_second_carries_weights_in_their_own_precision() -> None:
    two = read_deployment(bundled("gpt3-two-sites"), "mine.toml")
    assert two.wide_area_bytes(2) == pytest.approx(two.wide_area_bytes(1) * (4 + 2) / 2 / 4)
    with pytest.raises(ValueError, match=r"^trips: 3 is neither 1 nor 2"):
        two.wide_area_bytes(3)


def test_layers_that_do_not_divide_evenly_count_as_the_largest_stage() -> None:
    llama = read_deployment(bundled("llama3-405b"), "mine.toml")  # 126 layers in 16 stages
    assert llama.layers_per_stage == 8


@pytest.mark.parametrize("expert", [1, 2, 4, 12])
def test_sharing_experts_changes_where_their_gradients_are_summed_but_not_what_crosses(expert: int) -> None:
    document = bundled("hundred-trillion-moe")
    document["parallelism"]["expert"] = expert
    deployment = read_deployment(document, "mine.toml")
    # every replica's share of all gradients of the layer, however its experts lie
    model = deployment.model
    whole = (model.attention_parameters + model.experts * model.expert_parameters) * 0.5 / 18
    assert deployment.wide_area_shard_bytes == pytest.approx(whole / 348, rel=1e-6)
    ranks = {stage.name: stage.ranks for stage in deployment.local_stages if stage.name.endswith("experts")}
    assert ranks["1 rack, experts"] * ranks["2 datacenter, experts"] * expert == 348


def test_experts_that_lie_across_racks_unevenly_are_refused() -> None:
    document = bundled("hundred-trillion-moe")
    document["parallelism"]["expert"] = 6  # one rack and a half
    with pytest.raises(
        ScenarioError, match=r"^mine.toml: parallelism.expert: 6 replicas are no whole part or multiple"
    ):
        read_deployment(document, "mine.toml")
