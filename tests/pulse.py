"""Virtual microphones for tests: PulseAudio, headless and on its own, plays a file into what PortAudio sees as devices.

Each microphone is the monitor of a null sink of one rate and channel count, behind an ALSA device of its own. ALSA's
PulseAudio devices take every rate and many channels and state 44.1 kHz and 32 of them, so a process that is to see the
microphones as they are runs under ``python -m tests.pulse``, which lets PortAudio state rate and channels of the sink.
Nothing outside the given folder is read or written: no session bus, no user configuration, no running server.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ALSA_CONFIG = Path("/usr/share/alsa/alsa.conf")
_PLUGINS = ("/usr/lib", "/usr/lib64")
START_LIMIT_S = 10.0


def missing() -> str:
    """What a virtual microphone lacks here, with the cure; empty when there is everything."""
    for program in ("pulseaudio", "pacat", "pactl"):
        if shutil.which(program) is None:
            return f"no {program} here (apt-get install pulseaudio pulseaudio-utils)"
    if not any(found for folder in _PLUGINS for found in Path(folder).rglob("libasound_module_pcm_pulse.so")):
        return "ALSA has no PulseAudio plugin here (apt-get install libasound2-plugins)"
    if not _ALSA_CONFIG.is_file():
        return f"no {_ALSA_CONFIG} here (apt-get install libasound2-data)"
    try:
        importlib.import_module("sounddevice")
    except (ImportError, OSError) as error:
        return f"sounddevice cannot be used here: {error} (apt-get install libportaudio2)"
    return ""


@dataclass(frozen=True)
class Microphone:
    """One virtual microphone.

    Attributes:
        rate_hz: its native rate.
        channels: of the sink behind it.
    """

    rate_hz: int
    channels: int

    @property
    def name(self) -> str:
        """The device's name for PortAudio."""
        return f"mic{self.rate_hz}x{self.channels}"

    @property
    def loudspeaker(self) -> str:
        """The name of an output device right in front of this microphone."""
        return f"speaker{self.rate_hz}x{self.channels}"

    @staticmethod
    def named(name: str) -> Microphone | None:
        """The microphone of that device name, or None for any other device."""
        found = re.fullmatch(r"mic(\d+)x(\d+)", name)
        return Microphone(int(found[1]), int(found[2])) if found else None


class Microphones:
    """A running PulseAudio with a number of microphones.

    Attributes:
        environment: what a process needs to see these microphones, and no other device.
    """

    def __init__(self, folder: Path, microphones: Sequence[Microphone]) -> None:
        self._socket = folder / "socket"
        self._folder = folder
        self._microphones = microphones
        self.environment: Mapping[str, str] = {
            "ALSA_CONFIG_PATH": str(folder / "asound.conf"),
            "PULSE_SERVER": f"unix:{self._socket}",
            "XDG_RUNTIME_DIR": str(folder),
            "HOME": str(folder),
        }
        # PortAudio aborts without ALSA's own definitions, so they are included.
        lines = [f"<{_ALSA_CONFIG}>"]
        for mic in microphones:
            where = f'server "unix:{self._socket}" device "{mic.name}.monitor"'
            lines.append(f'pcm.{mic.name} {{ type pulse {where} hint {{ show on description "test" }} }}')
            where = f'server "unix:{self._socket}" device "{mic.name}"'
            lines.append(f'pcm.{mic.loudspeaker} {{ type pulse {where} hint {{ show on description "test" }} }}')
        (folder / "asound.conf").write_text("\n".join(lines) + "\n")

    @contextlib.contextmanager
    def running(self) -> Iterator[Microphones]:
        """Start the server, and stop it.

        Raises:
            TimeoutError: when it does not start.
        """
        sinks = [
            f"--load=module-null-sink sink_name={mic.name} rate={mic.rate_hz} channels={mic.channels} format=s16le"
            for mic in self._microphones
        ]
        with (self._folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [
                    "pulseaudio", "-n", "--daemonize=no", "--use-pid-file=no", "--disable-shm", "--exit-idle-time=-1",
                    "--log-target=stderr", f"--load=module-native-protocol-unix auth-anonymous=1 socket={self._socket}",
                    *sinks,
                ],
                env={**os.environ, **self.environment}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            self._wait(server)
            yield self
        finally:
            server.terminate()
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s and server.poll() is None:
            listed = subprocess.run(
                ["pactl", "list", "short", "sources"], env={**os.environ, **self.environment}, capture_output=True
            )
            if listed.stdout.count(b".monitor") == len(self._microphones):
                return
            time.sleep(0.05)
        raise TimeoutError(f"pulseaudio does not start:\n{(self._folder / 'log').read_text()[-2000:]}")

    def play(self, file: Path, microphone: Microphone) -> None:
        """Play a file in real time, to its end."""
        subprocess.run(
            ["pacat", "--playback", "--file-format=wav", f"--device={microphone.name}", "--latency-msec=50", str(file)],
            env={**os.environ, **self.environment}, check=True, timeout=120, capture_output=True,
        )  # fmt: skip


def command(program: str, *arguments: str) -> list[str]:
    """The command line of a Python program that sees the microphones as they are."""
    return [sys.executable, "-m", "tests.pulse", program, *arguments]


def _state_what_they_are() -> None:
    import sounddevice

    query = sounddevice.query_devices

    def stated(device: Any) -> Any:
        mic = Microphone.named(device["name"])
        if mic is None:
            return device
        return {**device, "default_samplerate": float(mic.rate_hz), "max_input_channels": mic.channels}

    def query_devices(device: Any = None, kind: Any = None) -> Any:
        found = query(device, kind)
        return stated(found) if isinstance(found, dict) else sounddevice.DeviceList(map(stated, found))

    sounddevice.query_devices = query_devices


if __name__ == "__main__":
    _state_what_they_are()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=False)
