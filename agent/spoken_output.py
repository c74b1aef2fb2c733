"""The gate's voice with the ear for it: what is spoken, what was played, and which heard words are our own.

They belong together: a gate that speaks and does not know its own voice would obey itself.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.clock import Clock
from agent.output_voice import VoiceSettings, VoiceSink
from agent.own_voice import HeardSource, OwnVoice
from agent.playback import PlaybackRecord
from agent.player import Player
from agent.sources import Source
from agent.voices import Synthesiser


class SpokenOutput:
    """One session's voice. Make it inside a running event loop.

    Args:
        voice: the synthesiser, or None for earcons only.
        player: the output device.
        clock: the session's clock.
        settings: how patient the voice is.
        notices: lines for the person at the console that are known beforehand (no synthesiser, and the cure).

    Attributes:
        own_voice: tells our own words from others'; goes to the turns' work.
        sink: speaks; goes among the session's sinks.
    """

    def __init__(
        self,
        voice: Synthesiser | None,
        player: Player,
        clock: Clock,
        settings: VoiceSettings | None = None,
        notices: tuple[str, ...] = (),
    ) -> None:
        self.own_voice = OwnVoice(PlaybackRecord())
        self._say: Callable[[str, str], None] | None = None
        self._early = list(notices)
        self.sink = VoiceSink(
            voice=voice, player=player, record=self.own_voice.record, position=self.own_voice.position, clock=clock,
            notice=self._notice, settings=settings,
        )  # fmt: skip

    def tap(self, source: Source) -> Source:
        """The source, with everything it yields also heard by ``own_voice``."""
        return HeardSource(source, self.own_voice)

    def start(self, say: Callable[[str, str], None]) -> None:
        """The session's events are open: notices go there from now on, as (code, message)."""
        self._say = say
        for line in self._early:
            say("voice", line)
        self._early.clear()

    def _notice(self, line: str) -> None:
        if self._say is None:
            self._early.append(line)
        else:
            self._say("voice", line)
