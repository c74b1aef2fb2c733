"""The scripted source: what tests stand on must itself be exact."""

from __future__ import annotations

import numpy as np
import pytest

from agent.frames import Frame, SourceGap
from agent.sources import (
    ErrorCode,
    NoticeCode,
    ScriptedSource,
    Silence,
    Source,
    SourceError,
    SourceItem,
    SourceNotice,
)


async def play(source: Source) -> list[SourceItem]:
    await source.open()
    try:
        return [item async for item in source]
    finally:
        await source.aclose()


async def test_a_script_is_played_in_order_and_to_the_sample() -> None:
    voice = np.full(1_000, 0.25, np.float32)
    notice = SourceNotice(NoticeCode.STALLED, "unplugged?")
    items = await play(ScriptedSource([Silence(0.05), voice, notice, SourceGap(0, 640), voice]))
    assert [(type(item).__name__, getattr(item, "start_sample", None)) for item in items[:6]] == [
        ("Frame", 0),
        ("Frame", 320),
        ("Frame", 640),
        ("Frame", 960),
        ("Frame", 1_280),
        ("SourceNotice", None),
    ]
    assert isinstance(items[5], SourceNotice)
    assert items[5].at_sample == 1_800
    sound = np.zeros(3_520, np.float32)
    for item in items:
        if isinstance(item, Frame):
            sound[item.start_sample : item.end_sample] = item.samples
    assert np.flatnonzero(sound).tolist() == [*range(800, 1_800), *range(2_440, 3_440)]
    (gap,) = [item for item in items if isinstance(item, SourceGap)]
    assert gap.lost_samples + gap.zeroed_samples == 640


async def test_a_script_can_fail_like_a_device() -> None:
    source = ScriptedSource([Silence(0.02), SourceError(ErrorCode.DEVICE_FAILED, "gone")])
    with pytest.raises(SourceError, match="gone"):
        await play(source)


async def test_closing_ends_the_iteration() -> None:
    source = ScriptedSource([Silence(10.0)], name="ten seconds")
    await source.open()
    count = 0
    async for _ in source:
        count += 1
        if count == 3:
            await source.aclose()
    assert count == 3
    assert source.describe["name"] == "ten seconds"
