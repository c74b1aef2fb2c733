"""A real microphone, as far as PortAudio can tell: what it hears is decided as a replay of the file is.

PulseAudio plays a recording into a virtual device in real time; ``voicegate listen`` runs on it, a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from agent import events
from agent.jsonl import read_events
from bench.rehearsal import Line
from bench.rehearsed_voicegate import TOOLS, write_talk
from bench.stage import HALL, HELLO, KITCHEN, STRANGER_COMMANDS, THANKS
from models.store import Store
from models.store_errors import ModelError
from tests.pulse import Microphone, Microphones, command, missing

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "bench" / "demo" / "demo.flac"
MICROPHONES = [Microphone(rate_hz, channels) for rate_hz in (16_000, 44_100, 48_000) for channels in (1, 2)]
PROGRAM = "bench.rehearsed_voicegate"
QUICK = Microphone(44_100, 2)
"""Played first and with the fewest lines: its rate is no multiple of the gate's, and its channels are mixed."""
SPAN_TOLERANCE_S = 0.06
"""The device's clock does not start with a frame of the file: a frame's length on either side, and the resampler's."""
FADING_TOLERANCE_S = 0.25
"""For a room's reverberation, which fades through the detector's threshold over several frames: where it is crossed
depends on where the frames begin."""
NOT_THE_OWNER_NEAR_BY = ("far", "other_speaker")
"""A bystander across the room is both. Which one is given hangs on scores that lie near their thresholds, and another
resampler moves them by a hair."""
LIMIT_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "not skipped")]


@pytest.fixture(scope="module")
def microphones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Microphones]:
    with Microphones(tmp_path_factory.mktemp("pulse"), MICROPHONES).running() as found:
        yield found


def arguments(folder: Path, name: str, allow: str = "allow = ['switch_lamp']", more: str = "") -> list[str]:
    """Flags under which everything that a session writes lies in ``folder``."""
    settings = folder / f"{name}.toml"
    settings.write_text(
        f"[tools]\n{allow}\nfolder = '{TOOLS}'\njournal = '{folder / name}.sqlite3'\n"
        f"[output]\nevents = '{folder / name}.jsonl'\n{more}"
    )
    return ["--settings", str(settings)]


def listen(
    program: str, folder: Path, microphones: Microphones, microphone: Microphone, file: Path, allow: str, more: str = ""
) -> list[events.Event]:
    """``voicegate listen`` while the file plays, and a Ctrl-C after it."""
    log = folder / "live.jsonl"
    process = subprocess.Popen(
        command(program, *arguments(folder, "live", allow, more), "listen", "--device", microphone.name),
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={
            **os.environ, **microphones.environment, "HOME": os.environ.get("HOME", "/"),
            "REHEARSAL_EFFECTS": str(folder / "live-effects"),
        },
    )  # fmt: skip
    try:
        wait_for(lambda: log.exists() and '"code":"opened"' in log.read_text(), process)
        microphones.play(file, microphone)
        played_s = time.monotonic()
        while time.monotonic() < played_s + 1.5 or undecided(log):
            if time.monotonic() > played_s + LIMIT_S:
                raise TimeoutError("a turn is not decided")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    return list(read_events(log))


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline_s, "the microphone was not opened"
        time.sleep(0.05)


def undecided(log: Path) -> bool:
    """Whether a turn was closed that has no decision yet."""
    seen = list(read_events(log))
    closed = {event.turn for event in seen if isinstance(event, events.TurnClosed)}
    return bool(closed - {event.turn for event in seen if isinstance(event, events.Decided)})


def replay(program: str, folder: Path, file: Path, allow: str) -> list[events.Event]:
    subprocess.run(
        [sys.executable, "-m", program, *arguments(folder, "replay", allow), "replay", "--json", str(file)],
        cwd=ROOT, check=True, timeout=300, capture_output=True,
        env={**os.environ, "REHEARSAL_EFFECTS": str(folder / "replay-effects")},
    )  # fmt: skip
    return list(read_events(folder / "replay.jsonl"))


def compare(
    live: list[events.Event],
    replayed: list[events.Event],
    span_tolerance_s: float = SPAN_TOLERANCE_S,
    same_reason: Collection[str] = (),
) -> None:
    def decided(found: list[events.Event]) -> list[events.Decided]:
        return [event for event in found if isinstance(event, events.Decided)]

    def what(found: list[events.Event]) -> list[tuple[object, ...]]:
        return [
            (event.action, event.tool, event.params, "alike" if event.reason in same_reason else event.reason)
            for event in decided(found)
        ]

    assert len(what(replayed)) > 0
    assert what(live) == what(replayed)
    live_zero_s, replay_zero_s = (decided(found)[0].evidence.span_s[0] for found in (live, replayed))
    for heard, played in zip(decided(live), decided(replayed), strict=True):
        for heard_s, played_s in zip(heard.evidence.span_s, played.evidence.span_s, strict=True):
            assert heard_s - live_zero_s == pytest.approx(played_s - replay_zero_s, abs=span_tolerance_s)
    assert [event.outcome for event in live if isinstance(event, events.Executed)] == [
        event.outcome for event in replayed if isinstance(event, events.Executed)
    ]
    assert not any(isinstance(event, events.SourceLost) for event in live), "a loss would explain a difference away"


def hold(microphone: Microphone, microphones: Microphones, folder: Path, *lines: Line) -> None:
    file, allow = folder / "talk.wav", "allow = ['switch_lamp']"
    write_talk(
        file, *lines, KITCHEN, STRANGER_COMMANDS, pause_s=0.7,
        rate_hz=microphone.rate_hz, channels=microphone.channels,
    )  # fmt: skip
    live = listen(PROGRAM, folder, microphones, microphone, file, allow)
    started = next(event for event in live if isinstance(event, events.SessionStarted))
    opened = (started.source["native_rate_hz"], started.source["channels"])
    assert opened == (microphone.rate_hz, microphone.channels), "opened as it is; resampled and mixed by the gate"
    compare(live, replay(PROGRAM, folder, file, allow))
    actions = [event.action for event in live if isinstance(event, events.Decided)]
    assert actions == [*("mute" for _ in lines), "tool", "mute"]
    assert (folder / "live-effects").read_text().count("\n") == 1


def test_a_microphone_is_decided_as_a_replay_is_so_what_was_tested_is_what_runs(
    microphones: Microphones, tmp_path: Path
) -> None:
    hold(QUICK, microphones, tmp_path)


@pytest.mark.parametrize("microphone", [mic for mic in MICROPHONES if mic != QUICK], ids=lambda mic: mic.name)
def test_rate_and_channels_of_the_microphone_change_no_decision(
    microphone: Microphone, microphones: Microphones, tmp_path: Path
) -> None:
    hold(microphone, microphones, tmp_path, HELLO)


def test_a_microphone_that_dies_in_a_command_executes_nothing_and_is_said(
    microphones: Microphones, tmp_path: Path
) -> None:
    """R23: the device goes away in the middle of the words."""
    folder = tmp_path / "pulse"
    folder.mkdir()
    microphone, file, log = MICROPHONES[0], tmp_path / "talk.wav", tmp_path / "live.jsonl"
    write_talk(file, HELLO, HALL, pause_s=1.0)
    environment = {**os.environ, "REHEARSAL_EFFECTS": str(tmp_path / "effects")}
    with Microphones(folder, [microphone]).running() as own:
        process = subprocess.Popen(
            command(PROGRAM, *arguments(tmp_path, "live"), "listen", "--device", microphone.name),
            cwd=ROOT, env={**environment, **own.environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        wait_for(lambda: log.exists() and '"code":"opened"' in log.read_text(), process)
        player = subprocess.Popen(
            ["pacat", "--playback", "--file-format=wav", f"--device={microphone.name}", str(file)],
            env={**os.environ, **own.environment}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: log.read_text().count('"event":"turn_opened"') == 2, process)
    player.wait(10)
    wait_for(lambda: '"code":"stalled"' in log.read_text(), process)
    process.send_signal(signal.SIGINT)
    sent_s = time.monotonic()
    process.communicate(timeout=LIMIT_S)
    assert time.monotonic() - sent_s < 4.0, "a dead device must not hold up Ctrl-C"
    assert not (tmp_path / "effects").exists(), "the words that were cut off were not executed"


def test_with_the_real_models_a_microphone_is_decided_as_a_replay_is(microphones: Microphones, tmp_path: Path) -> None:
    if not DEMO.exists():
        pytest.skip("no demo recording")
    try:
        Store().ensure_default()
    except (ModelError, OSError) as error:
        pytest.skip(f"the models are not here: {error}")
    allow = "deny = ['switch_lamp']"
    live = listen("agent.cli", tmp_path, microphones, Microphone(48_000, 1), DEMO, allow)
    replayed = replay("agent.cli", tmp_path, DEMO, allow)
    late = [
        event.error for event in (*live, *replayed) if isinstance(event, events.Failed) and "Timeout" in event.error
    ]
    if late:
        pytest.skip(f"the machine is too busy for the models' time limits: {late}")
    compare(live, replayed, FADING_TOLERANCE_S, NOT_THE_OWNER_NEAR_BY)


def aloud(microphone: Microphone) -> str:
    """The setting under which the gate's voice sounds right into that microphone."""
    return f"[voice]\nenabled = true\ndevice = '{microphone.loudspeaker}'\n"


def test_the_gates_own_sounds_in_its_microphone_make_it_do_nothing(microphones: Microphones, tmp_path: Path) -> None:
    microphone, file = MICROPHONES[2], tmp_path / "talk.wav"
    write_talk(file, HELLO, KITCHEN, THANKS, pause_s=2.5, rate_hz=microphone.rate_hz, channels=1)
    live = listen(PROGRAM, tmp_path, microphones, microphone, file, "allow = ['switch_lamp']", aloud(microphone))
    notices = [event.message for event in live if isinstance(event, events.OutputNotice)]
    assert not any("voice output" in line for line in notices), "the device was opened and played"
    # These ears take every sound for words, an earcon too: it may become a turn, but never more than a mute one.
    acted = [event for event in live if isinstance(event, events.Decided) and event.action != "mute"]
    assert [(event.action, event.tool) for event in acted] == [("tool", "switch_lamp")]
    assert (tmp_path / "live-effects").read_text().count("\n") == 1


def test_an_answer_spoken_into_the_microphone_is_known_as_our_own_voice(
    microphones: Microphones, tmp_path: Path
) -> None:
    pytest.importorskip("kokoro_onnx", reason="no synthesiser: pip install kokoro-onnx")
    try:
        Store().ensure_default()
        Store().file("kokoro-82m", "kokoro.onnx")
    except (ModelError, OSError) as error:
        pytest.skip(f"the models are not here: {error}")
    microphone, file = MICROPHONES[4], tmp_path / "talk.wav"
    audio, rate_hz = soundfile.read(DEMO, dtype="float32")
    question = next(
        segment for segment in json.loads(DEMO.with_suffix(".json").read_text())["segments"] if "?" in segment["text"]
    )
    start, end = (round(question[key] * rate_hz) for key in ("start", "end"))
    silence = np.zeros(rate_hz, np.float32)
    soundfile.write(file, np.concatenate([silence, audio[start:end], *[silence] * 12]), rate_hz)
    live = listen("agent.cli", tmp_path, microphones, microphone, file, "deny = []", aloud(microphone))
    if late := [event.error for event in live if isinstance(event, events.Failed) and "Timeout" in event.error]:
        pytest.skip(f"the machine is too busy for the models' time limits: {late}")
    first, *echoes = [event for event in live if isinstance(event, events.Decided)]
    assert first.action == "answer"
    assert [echo.reason for echo in echoes] == ["own_voice"], "heard, and neither answered nor obeyed"
