"""Thresholds: complete, in range, and never lower for a higher risk."""

from __future__ import annotations

import dataclasses

import pytest

from gate.catalogue import Risk
from gate.reasons import Reason
from gate.thresholds import RiskThresholds, Thresholds

LAX = RiskThresholds(0.0, 0.0, 0.0, False)
STRICT = RiskThresholds(0.1, 0.9, 0.9, True)


@pytest.mark.parametrize("name", ["owner_margin", "near_probability_at_least", "word_probability_at_least"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01, -1.0, 2.0])
def test_a_threshold_out_of_range_is_refused_by_name_so_it_cannot_open_the_gate(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(LAX, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", list(Risk))
def test_a_risk_without_thresholds_is_refused_by_name(missing: Risk) -> None:
    with pytest.raises(ValueError, match=missing.name):
        Thresholds({risk: LAX for risk in Risk if risk is not missing})


@pytest.mark.parametrize("field", [item.name for item in dataclasses.fields(RiskThresholds)])
@pytest.mark.parametrize("strict", [Risk.LOW, Risk.MEDIUM])
def test_a_higher_risk_that_demands_less_is_refused_by_name(field: str, strict: Risk) -> None:
    by_risk = {
        risk: dataclasses.replace(LAX, **{field: getattr(STRICT, field)}) if risk is strict else LAX for risk in Risk
    }
    with pytest.raises(ValueError, match=rf"{field} of {Risk(strict + 1).name}"):
        Thresholds(by_risk)


def test_equal_demands_for_all_risks_are_allowed() -> None:
    Thresholds(dict.fromkeys(Risk, STRICT))


@pytest.mark.parametrize(("mask", "life"), [(-1, 1), (0, 0), (0, -5)])
def test_lengths_out_of_range_are_refused(mask: int, life: int) -> None:
    with pytest.raises(ValueError, match="mask_reach_samples"):
        Thresholds(mask_reach_samples=mask, grant_life_samples=life)


def test_the_defaults_are_a_fresh_and_valid_set_each_time() -> None:
    assert Thresholds() == Thresholds()
    assert Thresholds().by_risk is not Thresholds().by_risk


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_one_sentence_for_people(reason: Reason) -> None:
    assert reason.sentence.endswith(".")
    assert reason.sentence[0].isupper()
    assert reason.value == reason.name.lower()


def test_no_two_reasons_read_alike() -> None:
    assert len({reason.sentence for reason in Reason}) == len(Reason)
