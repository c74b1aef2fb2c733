"""The commands ``listen`` and ``replay``: sessions on the microphone, on standard input, or on recordings."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from pydantic import SecretStr
from rich.console import Console

from agent import events
from agent.assemble import (
    Parts,
    journal_path,
    load_catalogue,
    load_owner,
    load_parts,
    make_session,
    open_journal,
    profile_in_use,
)
from agent.clock import Pace, WallClock
from agent.console import LiveConsole, PlainConsole
from agent.enrol import reference_from_files
from agent.eventlog import Sink
from agent.events import Event
from agent.exit_codes import ExitCode
from agent.journal_lines import journal_lines
from agent.jsonl import JsonLinesSink
from agent.output_mqtt import MqttSink
from agent.passphrase import passphrase_to_open
from agent.session import OwnerMode, OwnerReference
from agent.settings import Settings
from agent.source_file import FileSource
from agent.sources import Source, SourceError
from agent.spoken_output import SpokenOutput
from agent.voices import Synthesiser, VoiceError, load_kokoro
from agent.wearer_profile import is_encrypted
from models.store import Store
from tools.journal import Journal


class DecisionLines:
    """``replay --json``: one object a decision on standard output. A Tool decision waits for its outcome."""

    wants_levels = False

    def __init__(self, out: TextIO, file: str) -> None:
        self._out = out
        self._file = file
        self._waiting: dict[str, events.Decided] = {}

    def emit(self, event: Event) -> None:
        """Print what became final."""
        match event:
            case events.Decided() if event.action == "tool":
                self._waiting[event.turn] = event
            case events.Decided():
                self._print(event, None, None)
            case events.Executed() if event.turn in self._waiting:
                self._print(self._waiting.pop(event.turn), event.outcome, event.clock_s)

    async def aclose(self) -> None:
        """Print the Tool decisions whose outcome never came."""
        for event in self._waiting.values():
            self._print(event, "outcome_unknown", None)
        self._waiting.clear()

    def _print(self, event: events.Decided, outcome: str | None, executed_s: float | None) -> None:
        evidence = event.evidence.model_dump()
        timing = event.timing.model_dump()
        timing["executed"] = executed_s
        line = {
            "file": self._file,
            "turn": event.turn,
            "action": event.action,
            "tool": event.tool,
            "params": event.params,
            "answer": event.answer,
            "outcome": outcome,
            "reason": event.reason,
            "sentence": event.sentence,
            "detail": event.detail,
            "status": event.status,
            "proposed": event.proposed,
            "missing_param": event.missing_param,
            "span_s": evidence.pop("span_s"),
            "evidence": evidence,
            "timing": timing,
        }
        print(json.dumps(line, ensure_ascii=False), file=self._out, flush=True)


class _Notices:
    """Remembers whether a recording held any audio at all, so that an empty file is not taken for a quiet one."""

    wants_levels = False

    def __init__(self) -> None:
        self.no_audio = False

    def emit(self, event: Event) -> None:
        """Watch for the notice."""
        if isinstance(event, events.SourceNotice) and event.code == "no_audio":
            self.no_audio = True

    async def aclose(self) -> None:
        """Nothing to close."""


def _console(plain: bool, out: TextIO) -> Sink:
    console = Console(file=out)
    return LiveConsole(console) if console.is_terminal and not plain else PlainConsole(out)


def _event_file(settings: Settings) -> list[Sink]:
    return [JsonLinesSink(settings.output.events)] if settings.output.events else []


def passphrase_for(args: argparse.Namespace, settings: Settings) -> SecretStr | None:
    """The passphrase that a session's profile needs, asked for if need be; None where it needs none.

    Raises:
        PassphraseError: when it needs one and there is none.
    """
    path = None if args.enrolment else profile_in_use(settings)
    return passphrase_to_open(path) if path is not None and is_encrypted(path) else None


async def _owner(
    args: argparse.Namespace, settings: Settings, parts: Parts, passphrase: SecretStr | None
) -> tuple[OwnerMode, OwnerReference | None]:
    if args.enrolment:
        return OwnerMode.ENROLLED, await reference_from_files(args.enrolment, parts, settings)
    return load_owner(settings, parts, passphrase)


async def replay(
    args: argparse.Namespace, settings: Settings, store: Store, passphrase: SecretStr | None = None
) -> ExitCode:
    """Replay recordings, each as a session of its own, through the loop that the microphone drives.

    Args:
        args: from the command line.
        settings: all settings.
        store: where the models are.
        passphrase: from ``passphrase_for``.

    Returns:
        ``SOURCE`` when at least one file could not be used; the others are replayed all the same.
    """
    catalogue = load_catalogue(settings)
    parts = await asyncio.to_thread(load_parts, settings, store, catalogue)
    mode, owner = await _owner(args, settings, parts, passphrase)
    worst = ExitCode.OK
    with tempfile.TemporaryDirectory(prefix="voicegate-") as scratch:
        # A replay is a rehearsal: its executions go to a journal of its own unless one is named.
        journal = open_journal(settings.tools.journal or Path(scratch) / "journal.sqlite3")
        known = {row.key for row in journal.rows()}
        try:
            for file in args.files:
                sinks: list[Sink] = _event_file(settings)
                notices = _Notices()
                sinks.append(notices)
                if args.json:
                    sinks.append(DecisionLines(sys.stdout, str(file)))
                else:
                    print(f"\n{file}", flush=True)
                    sinks.append(_console(args.plain, sys.stdout))
                source = FileSource(file, channel=settings.source.channel)
                try:
                    await make_session(
                        source=source, settings=settings, parts=parts, catalogue=catalogue, journal=journal,
                        sinks=sinks, pace=Pace(args.pace), live=False, owner_mode=mode, owner=owner,
                        question=args.question,
                    ).run()  # fmt: skip
                except SourceError as error:
                    print(f"{file}: {error.message}", file=sys.stderr, flush=True)
                    worst = ExitCode.SOURCE
                if notices.no_audio:
                    worst = ExitCode.SOURCE
            if not args.json:
                added = [row for row in journal.rows() if row.key not in known]
                print("\n" + "\n".join(journal_lines(added)), flush=True)
        finally:
            journal.close()
    return worst


async def listen(
    args: argparse.Namespace, settings: Settings, store: Store, passphrase: SecretStr | None = None
) -> ExitCode:
    """Listen to the microphone, or to raw samples on standard input, until stopped.

    Args:
        args: from the command line.
        settings: all settings.
        store: where the models are.
        passphrase: from ``passphrase_for``.
    """
    clock = WallClock()
    catalogue = load_catalogue(settings)
    parts = await asyncio.to_thread(load_parts, settings, store, catalogue)
    mode, owner = await _owner(args, settings, parts, passphrase)
    journal: Journal = open_journal(journal_path(settings))
    for row in journal.recovered:
        print(f"from the last run: {row.tool} of turn {row.turn_id}: outcome unknown", file=sys.stderr)
    named = settings.mqtt.broker()
    broker = None if named is None else MqttSink(named, clock)
    spoken = await _spoken(settings, store, clock)
    outputs: list[Sink] = [*([broker] if broker else []), *([spoken.sink] if spoken else [])]
    sinks = [*_event_file(settings), *outputs, _console(args.plain, sys.stdout)]
    try:
        await make_session(
            source=_live_source(args, settings, clock), settings=settings, parts=parts, catalogue=catalogue,
            journal=journal, sinks=sinks, pace=Pace.WALL, live=True, owner_mode=mode, owner=owner, broker=broker,
            spoken=spoken,
        ).run()  # fmt: skip
    finally:
        journal.close()
    return ExitCode.OK


async def _spoken(settings: Settings, store: Store, clock: WallClock) -> SpokenOutput | None:
    """The gate's voice, if it is wanted: with earcons alone where there is no synthesiser, and a line that says so."""
    section = settings.voice
    if not section.enabled:
        return None
    from agent.player import SounddevicePlayer

    voice: Synthesiser | None = None
    notices: tuple[str, ...] = ()
    try:
        voice = await asyncio.to_thread(load_kokoro, store, section.style)
    except VoiceError as error:
        notices = (f"{error}; earcons instead",)
    return SpokenOutput(voice, SounddevicePlayer(section.device), clock, section.voice_settings(), notices)


def _live_source(args: argparse.Namespace, settings: Settings, clock: WallClock) -> Source:
    if args.stdin:
        from agent.source_stdin import StdinSource

        return StdinSource(
            sample_format=args.format, rate_hz=args.rate, channels=args.channels, channel=settings.source.channel
        )
    from agent.source_microphone import MicrophoneSource

    return MicrophoneSource(settings.source.device, clock=clock, channel=settings.source.channel)
