"""``voicegate`` as it is, with rehearsed ears and policy: ``python -m bench.rehearsed_voicegate replay talk.wav ...``.

For faults that end a whole process: signals, kills, crashes. With ``REHEARSAL_MODEL=hang`` the policy never answers;
it says so by making the file that ``REHEARSAL_EFFECTS`` names, with the suffix ``.model``.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np
import soundfile
import soxr

from agent import cli, run_sessions
from agent.assemble import Parts
from bench.rehearsal import Line, RehearsedEars, RehearsedPolicy, rehearsed_parts, speak
from bench.stage import LINES, REPLIES
from gate.span import SAMPLE_RATE_HZ

TOOLS = Path(__file__).parent / "rehearsal_tools"


def parts() -> Parts:
    """The rehearsed ears and policy, with the fault that the environment asks for."""
    policy = RehearsedPolicy(REPLIES)
    if os.environ.get("REHEARSAL_MODEL") == "hang":

        def hang(text: str) -> None:
            Path(os.environ["REHEARSAL_EFFECTS"]).with_suffix(".model").touch()
            threading.Event().wait()

        policy.before = hang
    return rehearsed_parts(RehearsedEars(LINES), policy)


def main(argv: list[str]) -> int:
    """Run one command of ``voicegate``."""

    # The one seam: what is loaded. Assigned by name, since it is no part of that module's interface.
    setattr(run_sessions, "load_parts", lambda *given: parts())  # noqa: B010
    return cli.main(argv)


def write_talk(
    path: Path, *lines: Line, pause_s: float = 0.9, rate_hz: int = SAMPLE_RATE_HZ, channels: int = 1
) -> None:
    """Write lines with pauses between them as a 16-bit WAV file; further channels are ever quieter copies."""
    pause = np.zeros(round(pause_s * SAMPLE_RATE_HZ), np.float32)
    sound = np.concatenate([pause, *(part for line in lines for part in (speak(line), pause))])
    if rate_hz != SAMPLE_RATE_HZ:
        sound = soxr.resample(sound, SAMPLE_RATE_HZ, rate_hz)
    soundfile.write(path, np.stack([sound * 0.8**number for number in range(channels)], axis=1), rate_hz)


def write_settings(folder: Path) -> Path:
    """Settings under which everything that a session writes lies in ``folder``; returns their file."""
    path = folder / "voicegate.toml"
    path.write_text(
        f"[tools]\nallow = ['switch_lamp']\nfolder = '{TOOLS}'\njournal = '{folder / 'journal.sqlite3'}'\n"
        f"[output]\nevents = '{folder / 'events.jsonl'}'\n"
    )
    return path


if __name__ == "__main__":
    cli.end(main(sys.argv[1:]))
