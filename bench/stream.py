"""What a session has heard so far, kept as the very samples that went into it, so that a turn can be found again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from agent.frames import Frame
from agent.sources import Description, Source, SourceGap, SourceItem
from models.protocols import Audio

_SAMPLE_BYTES = 4


class HeardStream:
    """The samples of a session's stream, in order."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def push(self, samples: Audio) -> None:
        """Add the next samples, float32 ``(samples,)``."""
        self._bytes += np.ascontiguousarray(samples, np.float32).tobytes()

    def find(self, audio: Audio) -> int | None:
        """Where a turn's samples stand in the stream.

        Args:
            audio: float32 ``(samples,)``, a stretch of what was pushed.

        Returns:
            The stream position of its first sample, or None when it is not there.
        """
        wanted = np.ascontiguousarray(audio, np.float32).tobytes()
        # The loop lets silence follow the last frame, and a turn may reach into it.
        stream = self._bytes + bytes(len(wanted))
        at = stream.find(wanted) if wanted else -1
        while at % _SAMPLE_BYTES and at >= 0:
            at = stream.find(wanted, at + 1)
        return None if at < 0 else at // _SAMPLE_BYTES


class TappedSource:
    """A source whose items are also written down as they pass.

    Args:
        source: the source.
        heard: takes its samples.
    """

    def __init__(self, source: Source, heard: HeardStream) -> None:
        self._source = source
        self._heard = heard

    @property
    def describe(self) -> Description:
        """The source's own description."""
        return self._source.describe

    async def open(self) -> None:
        """Open the source."""
        await self._source.open()

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The source's items, unchanged."""
        async for item in self._source:
            if isinstance(item, Frame):
                self._heard.push(item.samples)
            elif isinstance(item, SourceGap):
                self._heard.push(np.zeros(item.end_sample - item.start_sample, np.float32))
            yield item

    async def aclose(self) -> None:
        """Close the source."""
        await self._source.aclose()
