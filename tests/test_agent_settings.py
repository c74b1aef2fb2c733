"""Settings: a typo must never become a silent default."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.session import OwnerMode
from agent.settings import Settings, SettingsError, load_settings
from gate.catalogue import Risk
from gate.thresholds import Thresholds


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[turns]\nhangover = 600", "turns.hangover"),
        ("[tunrs]\nhangover_ms = 600", "tunrs"),
        ('[turns]\nhangover_ms = "600"', "turns.hangover_ms"),
        ("[turns]\nhangover_ms = 600.5", "turns.hangover_ms"),
        ("[tools]\nenabled = 1", "tools.enabled"),
        ('[tools]\nenabled = "yes"', "tools.enabled"),
        ("[gate.high]\nowner_margin = -1.0\nnear_probability_at_least=0.5\nword_probability_at_least=0.5\n"
         "refuse_any_damage=true", "gate.high.owner_margin"),
        ("[gate.high]\nowner_margin = 2.0\nnear_probability_at_least=0.5\nword_probability_at_least=0.5\n"
         "refuse_any_damage=true", "gate.high.owner_margin"),
        ("[gate.high]\nowner_margin = 0.1", "gate.high.near_probability_at_least"),
        ("[gate]\ngrant_life_s = nan", "not finite"),
        ("[session]\nowner = 'me'", "session.owner"),
        ("[models]\nthreads = 0", "models.threads"),
        ("not toml", "s.toml"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_refused_by_name(tmp_path: Path, text: str, named: str):
    with pytest.raises(SettingsError, match=named.replace(".", r"\.")):
        load_settings(_file(tmp_path, text))


def test_an_unknown_key_is_answered_with_the_known_ones(tmp_path: Path):
    with pytest.raises(SettingsError, match="hangover_ms"):
        load_settings(_file(tmp_path, "[turns]\nhangover = 600"))


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path):
    with pytest.raises(SettingsError, match="no such settings file"):
        load_settings(tmp_path / "none.toml")


def test_no_file_at_the_default_place_means_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_settings(None) == Settings()


def test_flags_override_the_file(tmp_path: Path):
    path = _file(tmp_path, "[models]\nthreads = 1\n[tools]\nenabled = true")
    settings = load_settings(path, {"models.threads": 4, "tools.enabled": False, "models.policy": None})
    assert (settings.models.threads, settings.tools.enabled, settings.models.policy) == (4, False, "smollm2")


def test_contradicting_turn_lengths_are_refused():
    with pytest.raises(SettingsError, match="hangover_ms"):
        Settings.model_validate({"turns": {"hangover_ms": 100}}).turns.turn_settings()


def test_the_defaults_are_the_gates_own():
    assert Settings().gate.thresholds() == Thresholds()
    assert Settings().gate.high.thresholds() == Thresholds().by_risk[Risk.HIGH]


@pytest.mark.parametrize(
    ("owner", "has_profile", "mode"),
    [
        ("auto", True, OwnerMode.ENROLLED), ("auto", False, OwnerMode.INITIATOR),
        ("enrolled", False, OwnerMode.ENROLLED), ("initiator", True, OwnerMode.INITIATOR),
    ],
)  # fmt: skip
def test_who_counts_as_owner(owner: str, has_profile: bool, mode: OwnerMode):
    assert Settings.model_validate({"session": {"owner": owner}}).owner_mode(has_profile) is mode
