"""The recording of a trial in the page: linked, embedded, or a sentence about why there is none to play."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import quote

import soundfile

from bench.report.runs import ReportedRun
from bench.trials import Trial

MIB = 2**20
DEFAULT_EMBED_MIB = 20.0
_MEDIA_TYPES = {
    "WAV": "audio/wav", "WAVEX": "audio/wav", "FLAC": "audio/flac", "OGG": "audio/ogg", "MP3": "audio/mpeg",
}  # fmt: skip
"""By libsndfile's name of the format."""


class AudioMode(Enum):
    """How recordings come with the page."""

    LINK = "link"
    EMBED = "embed"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Player:
    """The recording of a trial.

    Attributes:
        source: what an audio element plays (a relative path or a data URI), or None.
        seconds: how long it is, where that is known.
        why_not: why there is nothing to play, or an empty text.
    """

    source: str | None = None
    seconds: float | None = None
    why_not: str = ""


class Recordings:
    """Finds recordings and makes players of them.

    Args:
        mode: how they come with the page.
        page_folder: where the page will lie; links start there.
        embed_bytes: the most that is embedded, in bytes of the files, over the whole page.
    """

    def __init__(self, mode: AudioMode, page_folder: Path, embed_bytes: int) -> None:
        self._mode = mode
        self._page_folder = page_folder.resolve()
        self._left = self._limit = embed_bytes
        self.embedded = 0
        """How many recordings have been embedded."""
        self.left_out = 0
        """How many have not, for the limit."""

    def player(self, runs: Sequence[ReportedRun], trial: Trial) -> Player:
        """The player of a trial, from the first of some runs whose corpus is still there."""
        if trial.audio is None:
            return Player(why_not="Typed: there is no recording.")
        if self._mode is AudioMode.NONE:
            return Player(why_not="Recordings are left out of this page.")
        folders = list(dict.fromkeys(run.corpus for run in runs if run.corpus is not None))
        if not folders:
            return Player(
                why_not="Where the corpus lies is not recorded; name its manifest with --manifest to hear this."
            )
        paths = [folder / trial.audio for folder in folders]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return Player(why_not=f"The recording is not there any more: {trial.audio}")
        try:
            info = soundfile.info(path)
        except (soundfile.SoundFileError, OSError):
            # This also keeps any other file that a manifest may name out of the page.
            return Player(why_not=f"The file is no recording that can be read: {trial.audio}")
        media_type = _MEDIA_TYPES.get(info.format)
        if media_type is None:
            return Player(why_not=f"Browsers do not play {info.format}: {trial.audio}")
        if self._mode is AudioMode.LINK:
            return Player(self._link(path), info.duration)
        return self._embedded(path, media_type, info.duration)

    def _link(self, path: Path) -> str:
        relative = os.path.relpath(path.resolve(), self._page_folder)
        return quote(Path(relative).as_posix())

    def _embedded(self, path: Path, media_type: str, duration_s: float) -> Player:
        size = path.stat().st_size
        if size > self._left:
            self.left_out += 1
            return Player(
                seconds=duration_s,
                why_not=f"Not embedded: the page holds {self._limit / MIB:g} MiB of recordings at most.",
            )
        self._left -= size
        self.embedded += 1
        content = base64.b64encode(path.read_bytes()).decode("ascii")
        return Player(f"data:{media_type};base64,{content}", duration_s)
