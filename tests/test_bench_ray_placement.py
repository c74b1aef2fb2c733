"""How many replicas fit, and what is no amount: a replica that fits nowhere would be waited for without end."""

from __future__ import annotations

import pytest

from bench.ray_placement import Placement, PlacementError, parse_resource

EIGHT_GPUS = {"CPU": 64.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("placement", "nodes", "fitting"),
    [
        (Placement(2.0), [{"CPU": 4.0}], 2),
        (Placement(2.0), [{"CPU": 3.0}, {"CPU": 3.0}], 2),
        (Placement(4.0), [{"CPU": 3.0}, {"CPU": 3.0}], 0),
        (Placement(8.0, gpus=1.0), [EIGHT_GPUS], 8),
        (Placement(16.0, gpus=1.0), [EIGHT_GPUS], 4),
        (Placement(8.0, gpus=2.0), [EIGHT_GPUS, {"CPU": 64.0}], 4),
        (Placement(1.0, gpus=0.25), [{"CPU": 64.0, "GPU": 2.0}], 8),
        (Placement(1.0, gpus=1 / 3), [{"CPU": 64.0, "GPU": 1.0}], 3),
        (Placement(1.0, resources={"fast": 2.0}), [{"CPU": 9.0, "fast": 5.0}, {"CPU": 9.0}], 2),
        (Placement(1.0), [], 0),
    ],
)
def test_a_replica_stands_whole_on_one_node_so_remainders_of_nodes_hold_none(
    placement: Placement, nodes: list[dict[str, float]], fitting: int
):
    assert placement.fits(nodes) == fitting


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpus": 0.0}, {"cpus": float("nan")}, {"gpus": -1.0}, {"gpus": 1.5}, {"gpus": float("inf")},
        {"resources": {"fast": 0.0}},
    ],
)  # fmt: skip
def test_what_is_no_amount_is_refused_before_a_cluster_is_asked(wrong: dict[str, float]):
    with pytest.raises(PlacementError):
        Placement(**wrong)  # type: ignore[arg-type]


def test_ray_is_told_everything_that_a_replica_takes():
    options = Placement(4.0, 0.5, {"fast": 1.0}).options()
    assert (options["num_cpus"], options["num_gpus"], options["resources"]) == (4.0, 0.5, {"fast": 1.0})
    assert options["scheduling_strategy"] == "SPREAD", "a node that is lost must not take all replicas with it"


def test_a_resource_is_a_name_and_an_amount_and_never_shadows_a_flag():
    assert parse_resource("fast=0.5") == ("fast", 0.5)
    for text in ("fast", "fast=", "=1", "fast=many", "GPU=1", "CPU=1"):
        with pytest.raises(PlacementError, match="NAME=AMOUNT"):
            parse_resource(text)
