"""Room simulation: alignment, measured reverberation, distance and determinism."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.training import rooms
from models.training.rooms import ImpossibleRoomError, Method, Room

DIMS = (5.0, 4.0, 2.7)
SOURCE = (1.2, 1.5, 1.5)
FAR_MIC = (3.9, 2.9, 1.2)
NEAR_MIC = (1.4, 1.6, 1.45)


def room(rt60_s: float, seed: int = 3) -> Room:
    return Room.with_rt60(DIMS, rt60_s, np.random.default_rng(seed))


@pytest.mark.parametrize("rt60_s", [0.2, 0.4, 0.8])
def test_measured_rt60_is_near_the_one_asked_for(rt60_s: float) -> None:
    response = rooms.impulse_responses(room(rt60_s), SOURCE, [FAR_MIC], 1)[0]
    assert response.rt60_s == pytest.approx(rt60_s, rel=0.25)


def test_impossible_rt60_names_the_shortest_possible_one() -> None:
    with pytest.raises(ImpossibleRoomError, match=r"0\.020 s is impossible in a 5\.0 x 4\.0 x 2\.7 m room.*give 0\.0"):
        room(0.02)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_an_rt60_that_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ImpossibleRoomError):
        room(bad)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("mic", [NEAR_MIC, FAR_MIC])
def test_output_is_aligned_with_the_input_so_word_times_stay_true(
    method: Method, mic: tuple[float, float, float]
) -> None:
    click = np.zeros(4000)
    click[1000] = 1.0
    wet = rooms.render(click, room(0.3), SOURCE, mic, 1, method=method)
    # A reflection may be stronger than the direct sound, but none comes earlier.
    direct = float(np.abs(wet.audio[999:1002]).max())
    assert direct == pytest.approx(1.0 / wet.response.distance_m, rel=0.4)
    assert float(np.abs(wet.audio[:980]).max()) < 0.1 * direct
    assert len(wet.audio) == len(click)


def test_direct_to_reverberant_ratio_falls_with_distance_and_with_reverberation() -> None:
    near, far = rooms.impulse_responses(room(0.4), SOURCE, [NEAR_MIC, FAR_MIC], 1)
    live = rooms.impulse_responses(room(0.8), SOURCE, [FAR_MIC], 1)[0]
    assert near.drr_db > far.drr_db + 10.0
    assert live.drr_db < far.drr_db - 2.0


def test_both_renderers_agree_on_the_direct_to_reverberant_ratio() -> None:
    hybrid = rooms.impulse_responses(room(0.4), SOURCE, [FAR_MIC], 1)[0]
    image = rooms.impulse_responses(room(0.4), SOURCE, [FAR_MIC], 1, method=Method.IMAGE)[0]
    assert hybrid.drr_db == pytest.approx(image.drr_db, abs=1.0)


def test_the_same_seed_gives_the_same_samples_and_another_seed_another_tail() -> None:
    dry = np.random.default_rng(0).normal(size=8000)
    first, again, other = (rooms.render(dry, room(0.5), SOURCE, FAR_MIC, seed).audio for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_a_talker_who_looks_away_loses_treble_first() -> None:
    towards, away = (
        rooms.impulse_responses(room(0.3), SOURCE, [FAR_MIC], 1, facing_deg=[angle])[0] for angle in (0.0, 180.0)
    )

    def band_db(response: rooms.Response, low_hz: float, high_hz: float) -> float:
        power = np.abs(np.fft.rfft(response.taps, 32_768)) ** 2
        freqs = np.fft.rfftfreq(32_768, 1 / 16_000)
        return float(10 * np.log10(power[(freqs >= low_hz) & (freqs < high_hz)].mean()))

    bass = band_db(towards, 150, 400) - band_db(away, 150, 400)
    treble = band_db(towards, 3000, 7000) - band_db(away, 3000, 7000)
    assert treble > bass + 0.5
    assert away.drr_db < towards.drr_db - 2.0


def test_a_position_outside_the_room_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="outside the room"):
        rooms.impulse_responses(room(0.3), SOURCE, [(9.0, 1.0, 1.0)], 1)


def test_a_measured_response_can_be_moved_to_a_stated_ratio() -> None:
    rng = np.random.default_rng(5)
    time_s = np.arange(44_100) / 44_100
    taps = rng.normal(size=44_100) * np.exp(-6.9 * time_s / 0.5) * 0.05
    taps[300] = 1.0
    moved = rooms.measured_response(taps, 44_100, drr_db=-6.0)
    assert moved.drr_db == pytest.approx(-6.0, abs=0.6)
    assert moved.rt60_s == pytest.approx(0.5, rel=0.2)


def test_drawn_rooms_reach_from_dry_to_live() -> None:
    rng = np.random.default_rng(2)
    times = [float(rooms.draw_room(rng).eyring_rt60_s()[2:4].mean()) for _ in range(40)]
    assert min(times) < 0.25
    assert max(times) > 0.6
    assert all(0.14 < t < 0.95 for t in times)
