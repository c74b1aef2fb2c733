"""The EAR corpus: dialogues and passages in triplets, after *Pardon?* (sections 3.2, 3.3, 5.2 and 5.3).

Each script is spoken by its synthetic voices, both near the microphone of one room, and masked from the times that the
synthesiser gives. On dev and test every mask is made; on train one kind a script, all kinds in turn. Voices and rooms
of one split are in no other. What fills a babble mask is said in other scripts of the same split, by voices that do
not speak in this one, and never holds the answer.

A finished script is one line in ``built.jsonl`` under a digest of all that it depends on, so a build that was cut off
goes on where it stopped. The manifest is written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import soundfile

from bench.build.answers import says
from bench.build.ear_scripts import EarDialogue, EarScript, EarScripts, Gender, SpeakerLabel, load_ear_scripts
from bench.build.fillers import BABBLE_VOICES, Fillers, MaskKind
from bench.build.function_words import SpacyTagger, Tagger, function_words
from bench.build.masking import MASK_KINDS, seeded
from bench.build.phrases import spoken_words
from bench.build.scenes import Part, Scene, draw_acoustics, render
from bench.build.speech import Request, Speech, fill
from bench.build.triplets import ORIGINAL, Realisation, Recording, conditions, realise
from bench.build.voices import Voice, voices_of
from bench.trials import Expected, Segment, Trial, write_manifest
from gate.span import SAMPLE_RATE_HZ

RECIPE_VERSION: Final = "1"
"""Part of every digest; raised when rendering or masking changes what comes out."""
SEED: Final = 20_260_112
MANIFEST: Final = "manifest.jsonl"
TURN_GAP_S: Final = (0.25, 0.7)
SENTENCE_GAP_S: Final = (0.25, 0.45)
SPEED: Final = (0.9, 1.1)
SNR_DB: Final = (20.0, 35.0)
"""Speech over the room's noise. Competence is measured on recordings in which only the mask is in the way."""

_BUILT: Final = "built.jsonl"
_AUDIO: Final = "audio"
_FIRST_ROOM: Final = 20_000
"""Rooms are numbered within a split; the other corpora use lower numbers."""
_BABBLE_SPARE: Final = 3

Stage = Literal["speech", "masks"]
Report = Callable[[Any, int, int], None]
"""Told of progress: the stage, how many are done, of how many."""


@dataclass(frozen=True, slots=True)
class EarPlan:
    """All that the recordings of one script depend on.

    Attributes:
        script: what is said and asked.
        said: the pieces that are spoken, in order.
        gaps_s: silence before each.
        voices: the voice of each speaker.
        room: number of the room within the split.
        snr_db: speech over the room's noise.
        function_words: which of the words an invariant mask may take.
        babble: what is said in the background of babble masks.
        kinds: which masks are made.
    """

    script: EarScript
    said: tuple[Request, ...]
    gaps_s: tuple[float, ...]
    voices: dict[SpeakerLabel, str]
    room: int
    snr_db: float
    function_words: tuple[int, ...]
    babble: tuple[Request, ...]
    kinds: tuple[MaskKind, ...]

    @property
    def requests(self) -> tuple[Request, ...]:
        """The speech that it needs."""
        return (*self.said, *self.babble)

    def digest(self, synthesiser: str) -> str:
        """Changes with everything that the recordings or their labels depend on."""
        listed = asdict(self) | {"script": self.script.model_dump(mode="json")}
        text = json.dumps([RECIPE_VERSION, SEED, synthesiser, listed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def build_ear(
    folder: Path, factory: Callable[[], Any], workers: int, report: Report, *, split: str | None = None,
    limit: int | None = None, scripts: EarScripts | None = None, tagger: Tagger | None = None,
    speech_folder: Path | None = None,
) -> Path:  # fmt: skip
    """Build the corpus, or what is missing of it.

    Args:
        folder: where it goes.
        factory: makes a synthesiser, in this process and in each worker; importable.
        workers: processes, one thread each.
        report: told of progress.
        split: only that split.
        limit: stop after the triplet that brings the trials to this number.
        scripts: what is said; None for those that come with the benchmark.
        tagger: knows parts of speech; None for spaCy.
        speech_folder: the speech cache; None for the usual one.

    Returns:
        The manifest's path.

    Raises:
        EarScriptError: when the scripts are wrong.
        TaggerError: when no tagger is installed; names the cure.
        SpeechBuildError: when something cannot be spoken.
        MaskingError: when a script cannot be masked.
    """
    chosen = scripts or load_ear_scripts()
    plans = _limited([plan for plan in ear_plans(chosen, tagger or SpacyTagger()) if split in (None, plan.split)], limit)
    speech = Speech(factory(), speech_folder)
    (folder / _AUDIO).mkdir(parents=True, exist_ok=True)
    for done, of, _ in fill(speech, (r for plan in plans for r in plan.requests), factory, workers, speech_folder):
        report("speech", done, of)
    known = _built(folder)
    digests = {plan.script.id: plan.digest(speech.identity) for plan in plans}
    missing = [plan for plan in plans if digests[plan.script.id] not in known]
    with (folder / _BUILT).open("a", encoding="utf-8") as log:
        for done, (plan, trials) in enumerate(_render_all(missing, folder, factory, workers, speech_folder), 1):
            digest = digests[plan.script.id]
            known[digest] = trials
            log.write(json.dumps([digest, [json.loads(t.model_dump_json()) for t in trials]], ensure_ascii=False) + "\n")
            log.flush()
            report("masks", done, len(missing))
    path = folder / MANIFEST
    write_manifest(path, [trial for plan in plans for trial in known[digests[plan.script.id]]])
    return path
