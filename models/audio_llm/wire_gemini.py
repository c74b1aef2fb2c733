"""Gemini's REST interface: ``generateContent`` and ``streamGenerateContent?alt=sse``.

A model that thinks counts its thoughts as output, so a budget of thoughts is added to the tokens of the reply: a limit
that only the action was measured for would leave nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from models.audio_llm.conversation import AudioPart, BackendError, Message, Part, Role, Status, Stopped
from models.audio_llm.endpoint_costs import Usage
from models.audio_llm.wire_audio import wav_base64
from models.audio_llm.wire_format import Piece, bad, count, error_in_stream, required

_STOPPED: Final = {"STOP": Stopped.TERMINATOR, "MAX_TOKENS": Stopped.LENGTH}
_FILTERED: Final = {
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
}  # fmt: skip
_ROLES: Final = {Role.USER: "user", Role.ASSISTANT: "model"}
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class GeminiFormat:
    """Implements ``WireFormat``.

    Attributes:
        model: the model's name.
        thinking_tokens: how many tokens it may think; 0 switches thinking off where the model allows it; None leaves
            it to the model.
    """

    model: str
    thinking_tokens: int | None = 0

    @property
    def fixed(self) -> Mapping[str, Any]:
        """See ``WireFormat``."""
        config: dict[str, Any] = {"temperature": 0, "topK": 1, "seed": 0}
        if self.thinking_tokens is not None:
            config["thinkingConfig"] = {"thinkingBudget": self.thinking_tokens}
        return config

    def path(self, streamed: bool) -> str:
        """See ``WireFormat``."""
        method = "streamGenerateContent?alt=sse" if streamed else "generateContent"
        return f"models/{quote(self.model, safe='')}:{method}"

    def payload(self, messages: Sequence[Message], max_tokens: int, streamed: bool) -> dict[str, Any]:
        """See ``WireFormat``."""
        first, *rest = messages
        out: dict[str, Any] = {}
        if first.role is Role.SYSTEM:
            out["systemInstruction"] = {"parts": [{"text": first.text}]}
        else:
            rest = list(messages)
        out["contents"] = [
            {"role": _ROLES[message.role], "parts": [_part(part) for part in message.parts]} for message in rest
        ]
        out["generationConfig"] = {**self.fixed, "maxOutputTokens": max_tokens + (self.thinking_tokens or 0)}
        return out

    def read(self, document: Any, streamed: bool) -> Piece:
        """See ``WireFormat``."""
        if not isinstance(document, dict):
            raise bad("an answer that is no object")
        if error := document.get("error"):
            code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
            raise error_in_stream(code, str(message)[:_SHOWN_CHARS])
        feedback = document.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            reason = str(feedback["blockReason"])[:_SHOWN_CHARS]
            raise BackendError(Status.FILTERED, f"the prompt was blocked: {reason}")
        usage = _usage(document.get("usageMetadata"))
        candidates = document.get("candidates")
        if not candidates and streamed and usage is not None:
            return Piece(usage=usage)
        if not isinstance(candidates, list) or len(candidates) != 1 or not isinstance(candidates[0], dict):
            raise bad("not one candidate")
        stopped = _stopped(candidates[0].get("finishReason"), streamed)
        content = candidates[0].get("content") or {}  # a reply that thinking left no room for has none
        parts = content.get("parts", []) if isinstance(content, dict) else None
        if not isinstance(parts, list):
            raise bad("a content that is none")
        texts: dict[bool, str] = {False: "", True: ""}
        for part in parts:
            text = required(part, "text", str, "a part of the reply")
            texts[part.get("thought") is True] += text
        return Piece(texts[False], texts[True], stopped, usage)

    def is_end(self, data: str) -> bool:
        """See ``WireFormat``."""
        return False


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, AudioPart):
        return {"inlineData": {"mimeType": "audio/wav", "data": wav_base64(part.audio)}}
    return {"text": part.text}


def _stopped(reason: object, streamed: bool) -> Stopped | None:
    if reason is None and streamed:
        return None
    if reason in _FILTERED:
        raise BackendError(Status.FILTERED, f"the reply was withheld: {reason}")
    if reason not in _STOPPED:
        raise bad(f"the reply ended for {str(reason)[:_SHOWN_CHARS]!r}")
    return _STOPPED[str(reason)]


def _usage(document: Any) -> Usage | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise bad("a usage that is none")
    details = document.get("promptTokensDetails") or []
    audio = sum(
        count(detail, "tokenCount")
        for detail in (details if isinstance(details, list) else [])
        if isinstance(detail, dict) and detail.get("modality") == "AUDIO"
    )
    out = count(document, "candidatesTokenCount") + count(document, "thoughtsTokenCount")
    return Usage(max(count(document, "promptTokenCount") - audio, 0), audio, out)
