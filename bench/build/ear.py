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
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from bench.build.answers import says
from bench.build.ear_scripts import EarDialogue, EarScript, EarScripts, Gender, SpeakerLabel, load_ear_scripts
from bench.build.fillers import BABBLE_VOICES, FillerError, Fillers, MaskKind
from bench.build.function_words import SpacyTagger, Tagger, function_words
from bench.build.masking import MASK_KINDS, MaskingError, seeded
from bench.build.phrases import spoken_words
from bench.build.pool import each_with_speech, fill
from bench.build.recordings import write_recording
from bench.build.scenes import Part, Scene, draw_acoustics, render
from bench.build.speech import Request, Speech
from bench.build.triplets import Realisation, Recording, conditions, realise
from bench.build.voices import Voice, voices_of
from bench.trials import Expected, Segment, Trial, write_manifest
from gate.span import SAMPLE_RATE_HZ

RECIPE_VERSION: Final = "2"
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

Report = Callable[[str, int, int], None]
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
    def split(self) -> Literal["train", "dev", "test"]:
        """The script's."""
        return self.script.split

    @property
    def trials(self) -> int:
        """How many trials it makes."""
        return len(conditions(self.kinds))

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
    limit: int | None = None, only: Collection[str] | None = None, scripts: EarScripts | None = None,
    tagger: Tagger | None = None, speech_folder: Path | None = None,
) -> Path:  # fmt: skip
    """Build the corpus, or what is missing of it.

    Args:
        folder: where it goes.
        factory: makes a synthesiser, in this process and in each worker; importable.
        workers: processes, one thread each.
        report: told of progress.
        split: only that split.
        limit: stop after the triplet that brings the trials to this number.
        only: the ids of the scripts to record; None for all. The others still lend their voices to babble.
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
    if split is not None:
        chosen = chosen.of([split])
    plans = [plan for plan in ear_plans(chosen, tagger or SpacyTagger()) if only is None or plan.script.id in only]
    plans = _limited(plans, limit)
    speech = Speech(factory(), speech_folder)
    (folder / _AUDIO).mkdir(parents=True, exist_ok=True)
    for done, of, _ in fill(speech, (r for plan in plans for r in plan.requests), factory, workers, speech_folder):
        report("speech", done, of)
    known = _built(folder)
    digests = {plan.script.id: plan.digest(speech.identity) for plan in plans}
    missing = [plan for plan in plans if digests[plan.script.id] not in known]
    with (folder / _BUILT).open("a", encoding="utf-8") as log:
        rendered = each_with_speech(missing, partial(render_plan, folder=folder), factory, workers, speech_folder)
        for done, (plan, trials) in enumerate(rendered, 1):
            digest = digests[plan.script.id]
            known[digest] = trials
            listed = [json.loads(trial.model_dump_json()) for trial in trials]
            log.write(json.dumps([digest, listed], ensure_ascii=False) + "\n")
            log.flush()
            report("masks", done, len(missing))
    path = folder / MANIFEST
    write_manifest(path, [trial for plan in plans for trial in known[digests[plan.script.id]]])
    return path


# Plans ----------------------------------------------------------------------------------------------------------------


def ear_plans(scripts: EarScripts, tagger: Tagger) -> list[EarPlan]:
    """What every script's recordings depend on.

    Args:
        scripts: what is said. A babble mask draws on the scripts of its split, so a build of one split is the same as
            that part of the whole.
        tagger: knows parts of speech.
    """
    numbered: dict[str, int] = {}
    drafts: list[EarPlan] = []
    for script in scripts:
        number = numbered.setdefault(script.split, 0)
        numbered[script.split] += 1
        drafts.append(_draft(script, number, tagger))
    return [_with_babble(plan, [other for other in drafts if other.split == plan.split]) for plan in drafts]


def _draft(script: EarScript, number: int, tagger: Tagger) -> EarPlan:
    rng = seeded(SEED, script.id, "voices")
    voices: dict[SpeakerLabel, str] = {}
    for speaker in sorted({turn.speaker for turn in script.utterances()}):
        voices[speaker] = _voice(script.split, script.voice_of(speaker), list(voices.values()), rng)
    speed = {speaker: float(np.round(rng.uniform(*SPEED), 2)) for speaker in voices}
    said = tuple(Request(turn.text, voices[turn.speaker], speed[turn.speaker]) for turn in script.utterances())
    gap_s = TURN_GAP_S if isinstance(script, EarDialogue) else SENTENCE_GAP_S
    return EarPlan(
        script=script, said=said, gaps_s=(0.0, *(float(np.round(rng.uniform(*gap_s), 3)) for _ in said[1:])),
        voices=voices, room=_FIRST_ROOM + number, snr_db=float(np.round(rng.uniform(*SNR_DB), 1)),
        function_words=_function_words(script, tagger), babble=(),
        kinds=MASK_KINDS if script.split != "train" else (MASK_KINDS[number % len(MASK_KINDS)],),
    )  # fmt: skip


def _voice(split: str, gender: Gender, taken: Sequence[str], rng: np.random.Generator) -> str:
    fit = [
        voice
        for voice in voices_of(split)
        if voice.sex == gender[0] and not any(voice.shares_a_part_with(Voice(name)) for name in taken)
    ]
    return fit[int(rng.integers(len(fit)))].name


def _function_words(script: EarScript, tagger: Tagger) -> tuple[int, ...]:
    """Indices over all words of the script; each piece is tagged by itself, since it is a sentence or a few."""
    out: list[int] = []
    before = 0
    for turn in script.utterances():
        out.extend(before + index for index in function_words(turn.text, tagger))
        before += len(spoken_words(turn.text))
    return tuple(out)


def _with_babble(plan: EarPlan, same_split: Sequence[EarPlan]) -> EarPlan:
    """The plan with what is said behind a babble mask: never an answer, and by nobody who speaks in the recording."""
    speaking = [Voice(name) for name in plan.voices.values()]
    fit = sorted(
        {
            request
            for other in same_split
            if other.script.id != plan.script.id
            for request in other.said
            if not any(Voice(request.voice).shares_a_part_with(voice) for voice in speaking)
            and not any(says(request.text.split(), answer) for answer in plan.script.answers)
        }
    )
    rng = seeded(SEED, plan.script.id, "babble")
    drawn = rng.permutation(len(fit))[: BABBLE_VOICES + _BABBLE_SPARE] if "babble" in plan.kinds else ()
    return replace(plan, babble=tuple(fit[index] for index in drawn))


def _limited(plans: Sequence[EarPlan], limit: int | None) -> list[EarPlan]:
    out: list[EarPlan] = []
    for plan in plans:
        if limit is not None and sum(one.trials for one in out) >= limit:
            break
        out.append(plan)
    return out


# Recordings -----------------------------------------------------------------------------------------------------------


def render_plan(plan: EarPlan, speech: Speech, folder: Path) -> list[Trial]:
    """Make the recordings of one script.

    Args:
        plan: of the script.
        speech: where its speech comes from.
        folder: of the corpus.

    Returns:
        Its trials. Their audio is there when this returns.

    Raises:
        MaskingError: when the script cannot be masked; names it.
    """
    acoustics = draw_acoustics(plan.split, plan.room, snr_db=plan.snr_db)
    parts = tuple(
        Part(speech.say(request.text, request.voice, request.speed), turn.speaker, "near", "dialogue", turn.text, gap_s)
        for request, turn, gap_s in zip(plan.said, plan.script.utterances(), plan.gaps_s, strict=True)
    )
    scene = render(parts, acoustics)
    recording = Recording(
        plan.script.id, scene.samples, tuple(word for words in scene.words for word in words),
        plan.script.answers[:1], plan.script.answers, plan.function_words,
    )  # fmt: skip
    fillers = Fillers(voices=[speech.say(one.text, one.voice, one.speed).samples for one in plan.babble])
    facts = {
        "words": [[[w.text, w.span.start_sample, w.span.end_sample] for w in words] for words in scene.words],
        "voices": plan.voices,
        "synthesiser": speech.identity,
        "acoustics": acoustics.facts(),
        "duration_s": round(scene.samples.size / SAMPLE_RATE_HZ, 3),
        "scale_db": round(scene.scale_db, 2),
    }
    try:
        return [_trial(plan, scene, made, facts, folder) for made in realise(recording, fillers, SEED, plan.kinds)]
    except (MaskingError, FillerError) as error:
        raise MaskingError(f"{plan.script.id}: {error}") from error


def _trial(plan: EarPlan, scene: Scene, made: Realisation, facts: dict[str, Any], folder: Path) -> Trial:
    triplet = f"ear.{plan.script.id}"
    name = f"{triplet}.{trial_suffix(made.condition)}"
    audio = f"{_AUDIO}/{name}.flac"
    answered, repaired = Expected(action="answer", answer=plan.script.answers), Expected(action="pardon")
    return Trial(
        id=name, family="ear", condition=made.condition, audio=audio, question=plan.script.question,
        expected=answered if made.answerable else repaired,
        segments=tuple(Segment(**segment) for segment in scene.segments), triplet=triplet, split=plan.split,
        mask=made.mask, script_family=plan.script.family,
        sha256=write_recording(folder / audio, made.samples, "flac"), **facts,
    )  # type: ignore[call-arg]  # fields beyond the contract are kept  # fmt: skip


def trial_suffix(condition: str) -> str:
    """A condition as the end of a trial's id: ``degrading.noise-wide``."""
    return condition.removeprefix("semantic_").replace("/", ".").replace("+", "-")


def _built(folder: Path) -> dict[str, list[Trial]]:
    """What was finished before, by digest; a torn last line and trials whose audio is gone count for nothing."""
    found: dict[str, list[Trial]] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / _BUILT).read_text(encoding="utf-8").split("\n"):
            with contextlib.suppress(ValueError):
                digest, listed = json.loads(line)
                trials = [Trial.model_validate_json(json.dumps(trial)) for trial in listed]
                if all(file.is_file() for trial in trials for file in trial.files(folder)):
                    found[digest] = trials
    return found
