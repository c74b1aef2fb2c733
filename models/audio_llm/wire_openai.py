"""OpenAI's chat completions, as OpenAI, vLLM and StepFun's fork of vLLM speak them.

Sound goes in ``input_audio`` parts (base64 without a prefix) or, as vLLM also takes it, in ``audio_url`` parts with a
``data:`` address. The sampling parameters that vLLM adds are set one and all: what is left out it takes from the
model's own ``generation_config.json``, and Audio Flamingo 3's has a repetition penalty that temperature 0 does not
undo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from models.audio_llm.conversation import AudioPart, BackendError, Message, Part, Status, Stopped
from models.audio_llm.endpoint_costs import Usage
from models.audio_llm.wire_audio import wav_base64
from models.audio_llm.wire_format import Piece, bad, count, error_in_stream, required

_STOPPED: Final = {"stop": Stopped.TERMINATOR, "length": Stopped.LENGTH}
_SHOWN_CHARS = 200
_END = "[DONE]"


class AudioAs(StrEnum):
    """How sound is put into a request."""

    INPUT_AUDIO = "input_audio"
    AUDIO_URL = "audio_url"


@dataclass(frozen=True, slots=True)
class OpenAiFormat:
    """Implements ``WireFormat``.

    Attributes:
        model: the model's name at the server.
        more: further fields of every request.
        audio_as: how sound is put into it.
    """

    model: str
    more: Mapping[str, Any] = field(default_factory=dict)
    audio_as: AudioAs = AudioAs.INPUT_AUDIO

    @property
    def fixed(self) -> Mapping[str, Any]:
        """See ``WireFormat``."""
        return {"model": self.model, "temperature": 0, **self.more}

    def path(self, streamed: bool) -> str:
        """See ``WireFormat``."""
        return "chat/completions"

    def payload(self, messages: Sequence[Message], max_tokens: int, streamed: bool) -> dict[str, Any]:
        """See ``WireFormat``."""
        out = {
            **self.fixed,
            "messages": [self._message(message) for message in messages],
            "max_completion_tokens": max_tokens,
        }
        if streamed:
            out |= {"stream": True, "stream_options": {"include_usage": True}}
        return out

    def read(self, document: Any, streamed: bool) -> Piece:
        """See ``WireFormat``."""
        if isinstance(document, dict) and document.get("error"):
            raise _error(document["error"])
        choices = required(document, "choices", list, "a chat completion")
        usage = _usage(document.get("usage"))
        if not choices and streamed:  # the last event of a stream holds the usage alone
            return Piece(usage=usage)
        if len(choices) != 1:
            raise bad(f"{len(choices)} choices")
        written = required(choices[0], "delta" if streamed else "message", dict, "a choice")
        if written.get("refusal"):
            raise BackendError(Status.FILTERED, f"refused: {str(written['refusal'])[:_SHOWN_CHARS]}")
        content = written.get("content")
        if not isinstance(content, str) and not (streamed and content is None):
            raise bad("the reply holds no text")
        thoughts = written.get("reasoning") or written.get("reasoning_content") or ""
        if not isinstance(thoughts, str):
            raise bad("thoughts that are no text")
        return Piece(content or "", thoughts, _stopped(choices[0].get("finish_reason"), streamed), usage)

    def is_end(self, data: str) -> bool:
        """See ``WireFormat``."""
        return data == _END

    def _message(self, message: Message) -> dict[str, Any]:
        if not message.sounds:
            return {"role": str(message.role), "content": message.text}
        return {"role": str(message.role), "content": [self._part(part) for part in message.parts]}

    def _part(self, part: Part) -> dict[str, Any]:
        if not isinstance(part, AudioPart):
            return {"type": "text", "text": part.text}
        data = wav_base64(part.audio)
        if self.audio_as is AudioAs.AUDIO_URL:
            return {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{data}"}}
        return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def _stopped(reason: object, streamed: bool) -> Stopped | None:
    if reason is None and streamed:
        return None
    if reason == "content_filter":
        raise BackendError(Status.FILTERED, "the server withheld the reply")
    if reason not in _STOPPED:
        raise bad(f"the reply ended for {str(reason)[:_SHOWN_CHARS]!r}")
    return _STOPPED[str(reason)]


def _usage(document: Any) -> Usage | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise bad("a usage that is none")
    details = document.get("prompt_tokens_details") or {}
    audio = count(details, "audio_tokens") if isinstance(details, dict) else 0
    return Usage(max(count(document, "prompt_tokens") - audio, 0), audio, count(document, "completion_tokens"))


def _error(error: Any) -> Exception:
    if not isinstance(error, dict):
        return error_in_stream(None, str(error)[:_SHOWN_CHARS])
    return error_in_stream(error.get("code"), str(error.get("message", ""))[:_SHOWN_CHARS])
