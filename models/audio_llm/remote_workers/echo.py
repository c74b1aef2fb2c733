"""A worker without a model: it says back what it was given. It tries out the protocol.

``python -m models.audio_llm.remote_workers.echo``
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import wave

from models.audio_llm.remote_workers.protocol import Loaded, Replied, Turn, serve

MODEL = "echo"


def _heard(wav: bytes) -> dict[str, object]:
    with wave.open(io.BytesIO(wav)) as file:
        form = [file.getframerate(), file.getnchannels(), 8 * file.getsampwidth()]
        samples = file.readframes(file.getnframes())
    return {"form": form, "samples": len(samples) // 2, "sha256": hashlib.sha256(samples).hexdigest()}


def reply(turn: Turn) -> Replied:
    """Each message as JSON, said word by word."""
    said = [
        [message.role, *(_heard(part) if isinstance(part, bytes) else part for part in message.parts)]
        for message in turn.request.messages
    ]
    words = json.dumps(said, ensure_ascii=False).split(" ")
    for count in range(1, min(len(words), turn.request.max_tokens) + 1):
        if turn.cancelled.is_set():
            return Replied(" ".join(words[: count - 1]), count - 1, "cancelled")
        turn.progress(" ".join(words[:count]))
    cut = len(words) > turn.request.max_tokens
    return Replied(" ".join(words[: turn.request.max_tokens]), count, "length" if cut else "terminator")


if __name__ == "__main__":
    sys.exit(serve(MODEL, lambda: Loaded(reply, {"python": sys.version.split()[0]})))
