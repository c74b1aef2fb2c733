"""A server on this machine that speaks a wire format strictly, and plays back what servers do, well or badly.

It refuses what the real servers would only ignore: a field that it does not know, sound in another form, stop ids that
are missing. What it refuses is kept in ``violations``, so that a test fails whatever the client makes of the refusal.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

WAV_HEADER_BYTES = 44


class ViolationError(AssertionError):
    """The request is not as the server's interface says."""


def need(condition: object, what: str) -> None:
    """Refuse a request."""
    if not condition:
        raise ViolationError(what)


def samples_of(data: str) -> npt.NDArray[np.int16]:
    """The samples of a base64 WAV file, which must be 16 kHz, mono, PCM16, of the length that its header says."""
    wav = base64.b64decode(data, validate=True)
    need(wav[:4] == b"RIFF" and wav[8:16] == b"WAVEfmt ", "sound is no WAV file")
    form, channels, rate, byte_rate, block, bits = struct.unpack("<HHIIHH", wav[20:36])
    need((form, channels, rate, byte_rate, block, bits) == (1, 1, 16000, 32000, 2, 16), "not 16 kHz mono PCM16")
    need(wav[36:40] == b"data", "no data chunk")
    need(struct.unpack("<I", wav[40:44])[0] == len(wav) - WAV_HEADER_BYTES, "the data chunk's length is wrong")
    need(struct.unpack("<I", wav[4:8])[0] == len(wav) - 8, "the file's length is wrong")
    return np.frombuffer(wav[WAV_HEADER_BYTES:], "<i2")


@dataclass
class Asked:
    """One request that was accepted or refused."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    sounds: list[npt.NDArray[np.int16]] = field(default_factory=list)
    streamed: bool = False


class Wire(Protocol):
    """A format: what a request must be, and how a reply looks."""

    def check(self, asked: Asked) -> None:
        """Refuse a request, or take its sounds and note whether it is to be streamed."""

    def whole(self, text: str, reason: str, **more: Any) -> dict[str, Any]:
        """A reply in one document."""

    def events(self, pieces: Sequence[str], reason: str | None, **more: Any) -> list[str]:
        """A reply as the data of server-sent events; without a reason it does not end."""


@dataclass
class OpenAi:
    """OpenAI's chat completions.

    Attributes:
        key: what the bearer token must be; None forbids one.
        more: exactly what stands in a request beside the format's own fields.
        model: the name of the model.
        system_role: whether a system message may stand first.
        longest_s: of a sound.
        part: the type of its parts.
    """

    key: str | None
    model: str
    more: Mapping[str, Any]
    system_role: bool = True
    longest_s: float = 600.0
    part: str = "input_audio"

    def check(self, asked: Asked) -> None:
        """See ``Wire``."""
        need(asked.path == "/v1/chat/completions", f"path {asked.path}")
        expected = None if self.key is None else f"Bearer {self.key}"
        need(asked.headers.get("authorization") == expected, "the Authorization header is wrong")
        body = asked.body
        asked.streamed = body.get("stream") is True
        fields = {"model", "messages", "temperature", "max_completion_tokens", *self.more}
        fields |= {"stream", "stream_options"} if asked.streamed else set()
        need(body.keys() == fields, f"fields {sorted(body.keys() ^ fields)} are unknown or missing")
        need(body["model"] == self.model, "another model")
        need(body["temperature"] == 0, "not greedy")
        need(type(body["max_completion_tokens"]) is int and body["max_completion_tokens"] > 0, "no limit of tokens")
        need(not asked.streamed or body["stream_options"] == {"include_usage": True}, "usage is not asked for")
        for name, value in self.more.items():
            need(body[name] == value and type(body[name]) is type(value), f"{name} is {body[name]!r}, not {value!r}")
        roles = [message["role"] for message in body["messages"]]
        need(set(roles) <= {"system", "user", "assistant"}, f"roles {roles}")
        need("system" not in roles[1:] and (self.system_role or "system" not in roles), "a system message out of place")
        need(roles[-1] == "user", "the last message is not the user's")
        for message in body["messages"]:
            need(message.keys() == {"role", "content"}, f"a message with {sorted(message)}")
            if not isinstance(message["content"], str):
                need(message["role"] == "user", "parts in another's message")
                for part in message["content"]:
                    self._check_part(asked, part)

    def _check_part(self, asked: Asked, part: dict[str, Any]) -> None:
        if part["type"] == "text":
            need(part.keys() == {"type", "text"} and isinstance(part["text"], str), "a text part with other fields")
            return
        need(part["type"] == self.part, f"a part of type {part['type']}")
        need(part.keys() == {"type", self.part}, "a sound part with other fields")
        if self.part == "input_audio":
            need(part["input_audio"].keys() == {"data", "format"}, "input_audio with other fields")
            need(part["input_audio"]["format"] == "wav", "another format")
            data = part["input_audio"]["data"]
        else:
            need(part["audio_url"].keys() == {"url"}, "audio_url with other fields")
            url = part["audio_url"]["url"]
            need(url.startswith("data:audio/wav;base64,"), "no data: address of a WAV file")
            data = url.partition(",")[2]
        samples = samples_of(data)
        need(len(samples) <= self.longest_s * 16000, f"a sound of {len(samples) / 16000:g} s")
        asked.sounds.append(samples)

    def whole(self, text: str, reason: str = "stop", **more: Any) -> dict[str, Any]:
        """See ``Wire``."""
        message = {"role": "assistant", "content": text, **more.pop("message", {})}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"id": "x", "object": "chat.completion", "choices": [choice], **more}

    def events(self, pieces: Sequence[str], reason: str | None = "stop", **more: Any) -> list[str]:
        """See ``Wire``."""
        usage = more.pop("usage", None)
        thoughts = more.pop("thoughts", ())
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning": thought} for thought in thoughts] + [{"content": piece} for piece in pieces]
        documents: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        if reason is not None:
            documents.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
            if usage is not None:
                documents.append({"choices": [], "usage": usage})
        return [json.dumps(document) for document in documents] + (["[DONE]"] if reason is not None else [])


@dataclass
class Gemini:
    """Gemini's REST interface."""

    key: str
    model: str
    config: Mapping[str, Any]

    def check(self, asked: Asked) -> None:
        """See ``Wire``."""
        streams = f"/v1beta/models/{self.model}:streamGenerateContent?alt=sse"
        need(asked.path in (streams, f"/v1beta/models/{self.model}:generateContent"), f"path {asked.path}")
        asked.streamed = asked.path == streams
        need(asked.headers.get("x-goog-api-key") == self.key, "the key's header is wrong")
        need("authorization" not in asked.headers, "a second key")
        body = asked.body
        fields = {"contents", "generationConfig"}
        need(body.keys() - {"systemInstruction"} == fields, f"fields {sorted(body)}")
        config = dict(body["generationConfig"])
        need(type(config.pop("maxOutputTokens", None)) is int, "no limit of tokens")
        need(config == dict(self.config), f"generationConfig {config}")
        if "systemInstruction" in body:
            need(body["systemInstruction"].keys() == {"parts"}, "systemInstruction with other fields")
            self._check_parts(asked, body["systemInstruction"]["parts"], sound=False)
        need(body["contents"][-1]["role"] == "user", "the last content is not the user's")
        for content in body["contents"]:
            need(content.keys() == {"role", "parts"}, "a content with other fields")
            need(content["role"] in ("user", "model"), f"role {content['role']}")
            self._check_parts(asked, content["parts"], sound=content["role"] == "user")

    def _check_parts(self, asked: Asked, parts: Iterable[dict[str, Any]], sound: bool) -> None:
        for part in parts:
            if part.keys() == {"inlineData"} and sound:
                need(part["inlineData"].keys() == {"mimeType", "data"}, "inlineData with other fields")
                need(part["inlineData"]["mimeType"] == "audio/wav", "another type")
                asked.sounds.append(samples_of(part["inlineData"]["data"]))
            else:
                need(part.keys() == {"text"} and isinstance(part["text"], str), f"a part with {sorted(part)}")

    def whole(self, text: str, reason: str = "STOP", **more: Any) -> dict[str, Any]:
        """See ``Wire``."""
        return {"candidates": [_candidate([text], reason)], **more}

    def events(self, pieces: Sequence[str], reason: str | None = "STOP", **more: Any) -> list[str]:
        """See ``Wire``."""
        documents: list[dict[str, Any]] = [{"candidates": [_candidate([piece], None)]} for piece in pieces]
        if reason is not None:
            documents.append({"candidates": [_candidate([""], reason)], **more})
        return [json.dumps(document) for document in documents]


def _candidate(texts: Sequence[str], reason: str | None) -> dict[str, Any]:
    out: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": text} for text in texts]}, "index": 0}
    return out if reason is None else {**out, "finishReason": reason}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    loopback: Loopback

    def setup(self) -> None:
        """Count the connection."""
        super().setup()
        self.loopback.connections += 1

    def do_POST(self) -> None:
        """Check the request and play the next answer."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        raw = self.rfile.read(int(headers["content-length"]))
        asked = Asked(self.path, headers, {})
        try:
            need(headers.get("content-type") == "application/json", "no JSON")
            asked.body = json.loads(raw)
            self.loopback.wire.check(asked)
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            self.loopback.violations.append(f"{type(error).__name__}: {error}")
            self.send(400, b'{"error": {"message": "refused"}}', "application/json")
            return
        self.loopback.asked.append(asked)
        play = self.loopback.script.pop(0) if self.loopback.script else self.loopback.usual
        play(self, asked)

    def send(self, status: int, body: bytes, content_type: str | None, **headers: str) -> None:
        """A whole answer."""
        self.send_response(status)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        """The head of a stream."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """A chunk of a stream; an empty one ends it."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


Play = Callable[[Handler, Asked], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet about clients that are gone, as some tests want them to be."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Loopback:
    """The server.

    Args:
        wire: the format it speaks.

    Attributes:
        asked: requests that were accepted.
        violations: what was wrong with those that were not.
        script: what to play next; when nothing is left, ``usual``.
        connections: how many were made.
        release: lets go whatever hangs.
        left: set when a client closes a stream before its end.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.asked: list[Asked] = []
        self.violations: list[str] = []
        self.script: list[Play] = []
        self.usual: Play = self.says("[Mute]")
        self.connections = 0
        self.release = threading.Event()
        self.left = threading.Event()
        handler = type("BoundHandler", (Handler,), {"loopback": self})
        self._http = _Server(("127.0.0.1", 0), handler)
        self.origin = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self.release.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def says(self, text: str, **more: Any) -> Play:
        """A reply, streamed word by word where a stream was asked for."""

        def play(handler: Handler, asked: Asked) -> None:
            if asked.streamed:
                self.streams(self.wire.events(re.findall(r"\S+\s*|\s+", text), **more))(handler, asked)
            else:
                handler.send(200, json.dumps(self.wire.whole(text, **more)).encode(), "application/json")

        return play

    def streams(self, data: Iterable[str], *, ends: bool = True, line_end: str = "\n") -> Play:
        """Events with these data; without ``ends`` the connection breaks after them."""

        def play(handler: Handler, asked: Asked) -> None:
            handler.begin_stream()
            for item in data:
                event = f": ping{line_end}{line_end}data: {item}{line_end}{line_end}".encode()
                for half in (event[: len(event) // 2], event[len(event) // 2 :]):
                    handler.chunk(half)
            if ends:
                handler.chunk(b"")
            else:
                handler.close_connection = True
                handler.connection.shutdown(socket.SHUT_RDWR)

        return play

    def streams_on(self, pieces: Sequence[str]) -> Play:
        """These pieces, and then one after the other until the client closes the connection."""

        def play(handler: Handler, asked: Asked) -> None:
            handler.begin_stream()
            try:
                for piece in pieces:
                    self._event(handler, piece)
                for _ in range(1000):
                    if self.release.wait(0.005):
                        return
                    self._event(handler, " and on")
            except OSError:
                handler.close_connection = True
                self.left.set()

        return play

    def _event(self, handler: Handler, piece: str) -> None:
        for data in self.wire.events([piece], None):
            handler.chunk(f"data: {data}\n\n".encode())

    def hangs(self, handler: Handler, asked: Asked) -> None:
        """Nothing, for long."""
        self.release.wait(20)
        handler.close_connection = True


def answers(status: int, body: bytes = b"{}", content_type: str | None = "application/json", **headers: str) -> Play:
    """An answer as it stands."""
    return lambda handler, asked: handler.send(status, body, content_type, **headers)


def drops(handler: Handler, asked: Asked) -> None:
    """The connection is closed without an answer."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
