"""Plays one trial as a session of its own, through the loop that the microphone drives.

Nothing is shortened for the benchmark: the file's own silences are played, the loop appends 1.5 s of silence so that
the last turn closes as it would live, and detector, owner and repair start anew with each trial. Three settings differ
from a live session, and are part of the recorded configuration: calls of high risk are not confirmed first
(``gate.confirm = []``), no call waits out a grace time (``tools.grace_*_s = 0``), since a recording cannot answer the
question or take the call back; and nothing of this computer's owner comes in (no profile, no settings file unless one
is named). Calls go to the stub back end, which records them.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from agent.assemble import make_session, open_journal
from agent.clock import Pace
from agent.enrol import ClipRefusedError, reference_from_files
from agent.eventlog import MemorySink
from agent.session import OwnerMode, OwnerReference
from agent.settings import Settings
from agent.source_file import FileSource
from agent.sources import ScriptedSource, Silence, Source, SourceError
from agent.turn_work import Limits
from bench.contestants import Contestant, load_contestant, make_setup
from bench.results import TrialResult, TrialTiming, failed, result_of
from bench.stream import HeardStream, TappedSource
from bench.trials import Trial
from models.audio_llm.dialects import Normalised, normalise
from models.store import Store

TYPED_SILENCE_S = 0.5
"""What the microphone hears while a text is typed."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """All that a worker must be told to play trials; it travels to other processes and machines.

    Attributes:
        policy: what is measured (see ``bench.contestants``).
        settings: all settings, as JSON.
        pace: which clock.
        seed: seeds every trial's random numbers, together with its id.
        timeout_s: how long a trial may take, in real seconds; at ``wall`` pace its audio comes on top.
        folder: the manifest's, in which audio is found.
        patience: multiplies the time limits of ears and policy. Above 1 where other programs share the machine: the
            limits are in real seconds, and a stage that only had to wait must not count as failed.
    """

    policy: str
    settings: str
    pace: Pace
    seed: int
    timeout_s: float
    folder: Path
    patience: float = 1.0

    @property
    def limits(self) -> Limits:
        """The time limits of the stages of a turn."""
        usual = Limits()
        return Limits(usual.ear_s * self.patience, usual.policy_s * self.patience)

    def limit_s(self, trial: Trial) -> float:
        """How long a trial may take, in real seconds."""
        if self.pace is not Pace.WALL or trial.audio is None:
            return self.timeout_s
        try:
            return self.timeout_s + float(soundfile.info(self.folder / trial.audio).duration)
        except (OSError, RuntimeError):
            return self.timeout_s  # whatever is wrong with the file is said where it is played


def bench_settings(settings: Settings, *, threads: int | None = None) -> Settings:
    """Settings as a benchmark runs under them.

    Args:
        settings: what the settings file says, or the defaults.
        threads: threads of each model; None leaves the settings' own.
    """
    values: dict[str, Any] = json.loads(settings.model_dump_json())
    values["gate"]["confirm"] = []
    values["tools"] |= {"grace_low_s": 0.0, "grace_medium_s": 0.0, "grace_high_s": 0.0, "journal": None}
    values["session"] = {"owner": "auto", "profile": None}
    for section in ("output", "mqtt", "voice"):
        values.pop(section, None)  # their defaults put nothing out
    if threads is not None:
        values["models"]["threads"] = threads
    return Settings.model_validate_json(json.dumps(values))


class TrialRunner:
    """Loads a contestant once and plays trials with it, one after the other.

    Args:
        spec: what to play, and how.
        contestant: plays instead of loading the one that ``spec`` names.

    Raises:
        UnknownContestantError: when nothing has the name.
        ModelError: when a model is missing or damaged.
        SettingsError: when the settings name something that does not exist.
    """

    def __init__(self, spec: RunSpec, contestant: Contestant | None = None) -> None:
        self.spec = spec
        self._settings = Settings.model_validate_json(spec.settings)
        self._contestant = contestant or load_contestant(spec.policy, make_setup(self._settings, Store()))
        self._enrolled: dict[str, OwnerReference] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="voicegate-bench-")
        self._journal = open_journal(Path(self._scratch.name) / "journal.sqlite3")
        self._loop = asyncio.Runner()

    @property
    def models(self) -> dict[str, str]:
        """Model names to the sha256 of what was loaded."""
        return self._contestant.parts.models()

    def run(self, trial: Trial) -> TrialResult:
        """Play one trial.

        Returns:
            Its result. What goes wrong in a trial is a result too, never an exception: it must not cost the others.
        """
        random.seed(f"{self.spec.seed}:{trial.id}")
        np.random.seed(random.getrandbits(32))
        began_unix = time.time()
        try:
            return self._loop.run(self._play(trial, began_unix))
        except (SourceError, ClipRefusedError) as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        timing = TrialTiming(began_unix=round(began_unix, 3), ended_unix=round(time.time(), 3))
        return failed(trial, "error", problem, timing)

    def close(self) -> None:
        """Let go of everything."""
        self._loop.close()
        self._journal.close()
        self._scratch.cleanup()

    async def _play(self, trial: Trial, began_unix: float) -> TrialResult:
        heard = HeardStream()
        parts = self._contestant.parts_for(self._contestant.parts, trial, heard)
        owner = await self._owner(trial)
        sink = MemorySink()
        cut_short = ""
        limit_s = self.spec.limit_s(trial)
        with self._contestant.around():
            session = make_session(
                source=TappedSource(self._source(trial), heard), settings=self._settings, parts=parts,
                catalogue=self._contestant.catalogue, journal=self._journal, sinks=[sink], pace=self.spec.pace,
                live=False, owner_mode=OwnerMode.INITIATOR if owner is None else OwnerMode.ENROLLED, owner=owner,
                question=trial.question, limits=self.spec.limits,
            )  # fmt: skip
            if trial.text is not None:
                session.submit_text(trial.text)
            try:
                async with asyncio.timeout(limit_s):
                    await session.run()
            except TimeoutError:
                cut_short = f"not done after {limit_s:.0f} s"
        return result_of(
            trial, sink.events, as_proposed=self._contestant.as_proposed, cut_short=cut_short, began_unix=began_unix,
            ended_unix=time.time(), normalise=self._normalise, dialects=self._settings.models.dialects,
        )  # fmt: skip

    def _normalise(self, raw: str) -> Normalised:
        names = getattr(self._contestant.parts.policy, "dialects", None)
        return normalise(raw, self._contestant.catalogue.all(), names)

    def _source(self, trial: Trial) -> Source:
        if trial.audio is None:
            return ScriptedSource([Silence(TYPED_SILENCE_S)], name=trial.id)
        return FileSource(self.spec.folder / trial.audio, channel=self._settings.source.channel)

    async def _owner(self, trial: Trial) -> OwnerReference | None:
        """The wearer as the trial's clip enrols her. Clips are shared by many trials, so each is measured once."""
        if trial.enrolment is None:
            return None
        if trial.enrolment not in self._enrolled:
            clip = self.spec.folder / trial.enrolment
            parts = self._contestant.parts
            self._enrolled[trial.enrolment] = await reference_from_files([clip], parts, self._settings)
        return self._enrolled[trial.enrolment]


MakeRunner = Callable[[RunSpec], TrialRunner]
"""Makes a worker's runner."""
