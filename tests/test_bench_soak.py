"""Hours of audio must leave nothing behind: the soak in small, and that it would notice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.soak import CYCLE_S, Sample, Soak, mixed_audio, soak
from gate.span import SAMPLE_RATE_HZ


@pytest.mark.slow
async def test_two_minutes_of_everything_leave_no_task_descriptor_or_thread_behind(tmp_path: Path) -> None:
    shown: list[Sample] = []
    result = await soak(2.5 * CYCLE_S, warm_up_s=CYCLE_S, every_s=CYCLE_S / 2, folder=tmp_path, show=shown.append)
    assert result.leaks() == []
    assert result.growth < 0.05
    assert tuple(shown) == result.samples
    assert len(shown) == 4
    assert result.samples[-1].turns > result.samples[0].turns > 5
    assert result.outcomes["done"] >= 5, "effects are on"
    assert result.outcomes["cancelled"] >= 2, "one call a cycle is taken back"
    assert set(result.outcomes) == {"done", "cancelled"}


def test_a_cycle_is_as_long_as_it_says() -> None:
    assert sum(map(len, mixed_audio())) == CYCLE_S * SAMPLE_RATE_HZ
    assert all(part.dtype == np.float32 for part in mixed_audio())


def test_growth_and_leaks_are_noticed() -> None:
    start = Sample(0.0, 0, 0, 100_000_000, 1, 10, 3)
    later = replace(start, rss_bytes=106_000_000, descriptors=12, tasks=2)
    result = Soak((start, later, start), start, later, {}, 1.0)
    assert round(result.growth, 3) == 0.06, "the highest counts, not the last"
    assert result.leaks() == ["1 tasks", "2 descriptors"]
