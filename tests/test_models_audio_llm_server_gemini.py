"""Gemini's REST interface: what is sent, what is made of answers, and the failures that are its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    Limits,
    Status,
    Stopped,
    TooLongError,
    assistant,
    system,
    user,
)
from models.audio_llm.endpoint import Endpoint
from models.audio_llm.endpoint_key import Key
from models.audio_llm.reading import is_decided
from models.audio_llm.server_chat import Habits, ServerChat
from models.audio_llm.server_load import chat_from_options
from models.audio_llm.server_presets import GEMINI
from models.audio_llm.wire_gemini import GeminiFormat
from tests.loopback_llm import Gemini, Loopback, Play, answers, drops

KEY = "AIza-very-secret-7"
MODEL = "gemini-2.5-flash"
CONFIG = {"temperature": 0, "topK": 1, "seed": 0, "thinkingConfig": {"thinkingBudget": 0}}
SOUND = (0.3 * np.sin(np.arange(8000) * 0.1)).astype(np.float32)
SAID = [system("Be brief."), user(AudioPart(SOUND), "What now?")]
USAGE = {
    "promptTokenCount": 116, "candidatesTokenCount": 6, "thoughtsTokenCount": 2,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}, {"modality": "AUDIO", "tokenCount": 16}],
}  # fmt: skip


class Waits(list[float]):
    """Takes the place of waiting."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    out = Loopback(Gemini(KEY, MODEL, CONFIG))
    yield out
    out.close()
    assert out.violations == []


def chat(server: Loopback, **more: Any) -> ServerChat:
    values = {"timeout_s": 5.0, "retries": 2, "wait": Waits(), **more}
    endpoint = Endpoint(f"{server.origin}/v1beta", Key(KEY), header="x-goog-api-key", **values)
    return ServerChat(
        "gemini", endpoint, GeminiFormat(MODEL), GEMINI.limits, GEMINI.habits, prices=GEMINI.prices
    )  # fmt: skip


def failure(talk: Callable[[], object]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        talk()
    return caught.value


@pytest.mark.parametrize("streamed", [False, True])
def test_gemini_is_sent_exactly_what_it_takes_and_its_costs_are_counted(server: Loopback, streamed: bool):
    server.usual = server.says("[Mute]", usageMetadata=USAGE)
    talk = chat_from_options("gemini", {"base_url": f"{server.origin}/v1beta"}, {"GEMINI_API_KEY": KEY})
    reply = talk.reply(SAID, 64, (lambda text: False) if streamed else None)
    assert (reply.text, reply.tokens, reply.stopped) == ("[Mute]", 8, Stopped.TERMINATOR)
    assert reply.note.startswith("0.000066 USD")  # 100 x 0.3 + 16 x 1.0 + 8 x 2.5, per million
    [asked] = server.asked
    assert asked.streamed is streamed
    assert asked.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert asked.body["generationConfig"]["maxOutputTokens"] == 64
    assert [list(part) for part in asked.body["contents"][0]["parts"]] == [["inlineData"], ["text"]]
    np.testing.assert_allclose(asked.sounds[0] / 32767, SOUND, atol=2e-5)


def test_what_the_model_said_before_is_in_its_own_role(server: Loopback):
    chat(server).reply([user("a"), assistant("b"), user("c")], 8)
    body = server.asked[0].body
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]
    assert "systemInstruction" not in body


def test_thoughts_do_not_use_up_the_tokens_of_the_action_and_are_no_part_of_it(server: Loopback):
    server.wire = Gemini(KEY, MODEL, {**CONFIG, "thinkingConfig": {"thinkingBudget": 512}})
    parts = [{"text": "who spoke?", "thought": True}, {"text": "[Mute]"}]
    document = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    server.usual = answers(200, json.dumps(document).encode())
    options = {"base_url": f"{server.origin}/v1beta", "thinking_tokens": "512"}
    reply = chat_from_options("gemini", options, {"GOOGLE_API_KEY": KEY}).reply(SAID, 64)
    assert reply.text == "<think>who spoke?</think>[Mute]"
    assert server.asked[0].body["generationConfig"]["maxOutputTokens"] == 64 + 512


def test_a_reply_that_thoughts_left_no_room_for_is_cut_off_and_empty(server: Loopback):
    document = {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}
    server.script = [
        answers(200, json.dumps(document).encode()),
        server.streams([json.dumps(document)]),
    ]
    for stop in (None, is_decided):
        reply = chat(server).reply(SAID, 64, stop)
        assert (reply.text, reply.stopped) == ("", Stopped.LENGTH)


def test_a_decided_reply_closes_the_connection(server: Loopback):
    server.script = [server.streams_on(["[Mute]"])]
    assert chat(server).reply(SAID, 64, is_decided).stopped is Stopped.DECIDED
    assert server.left.wait(5)


WHOLE: Mapping[str, tuple[Any, Status]] = {
    "a blocked prompt": ({"promptFeedback": {"blockReason": "SAFETY"}}, Status.FILTERED),
    "a blocked reply": ({"candidates": [{"finishReason": "SAFETY"}]}, Status.FILTERED),
    "a recitation": ({"candidates": [{"finishReason": "RECITATION"}]}, Status.FILTERED),
    "a call": ({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, Status.BAD_REPLY),
    "nothing": ({}, Status.BAD_REPLY),
    "a list": ([], Status.BAD_REPLY),
    "no text": (
        {"candidates": [{"content": {"parts": [{"functionCall": {}}]}, "finishReason": "STOP"}]}, Status.BAD_REPLY,
    ),
    "no parts": ({"candidates": [{"content": {"parts": "[Mute]"}, "finishReason": "STOP"}]}, Status.BAD_REPLY),
    "no end": ({"candidates": [{"content": {"parts": [{"text": "[Mute]"}]}}]}, Status.BAD_REPLY),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_withheld_or_garbled_never_becomes_a_reply(server: Loopback, name: str):
    document, status = WHOLE[name]
    server.script = [answers(200, json.dumps(document).encode())]
    assert failure(lambda: chat(server).reply(SAID, 8)).status == status
    assert len(server.asked) == 1


def test_a_reply_that_is_withheld_half_way_is_withheld_whole(server: Loopback):
    events = [*server.wire.events(["[Mu"], None), json.dumps({"candidates": [{"finishReason": "SAFETY"}]})]
    server.script = [server.streams(events)]
    assert failure(lambda: chat(server).reply(SAID, 8, lambda text: False)).status == Status.FILTERED


def test_a_stream_that_breaks_off_is_begun_anew(server: Loopback):
    half = server.wire.events(["[Mu"], None)
    server.script = [server.streams(half, ends=False), server.streams(half)]
    assert chat(server).reply(SAID, 8, lambda text: False).text == "[Mute]"
    server.script = [server.streams(half)] * 3
    assert failure(lambda: chat(server).reply(SAID, 8, lambda text: False)).status == Status.UNREACHABLE


INVALID = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": f"API key not valid: {KEY}",
                     "details": [{"reason": "API_KEY_INVALID"}]}}  # fmt: skip
REFUSED: Mapping[str, tuple[Play, Status, int]] = {
    "400 about the key": (answers(400, json.dumps(INVALID).encode()), Status.DENIED, 1),
    "400": (answers(400, b'{"error": {"code": 400}}'), Status.BAD_REQUEST, 1),
    "403": (answers(403), Status.DENIED, 1),
    "429": (answers(429), Status.RATE_LIMITED, 3),
    "503": (answers(503, KEY.encode()), Status.SERVER_ERROR, 3),
    "dropped": (drops, Status.UNREACHABLE, 3),
    "a page": (answers(200, b"<html>", "text/html"), Status.BAD_REPLY, 1),
}


@pytest.mark.parametrize("stop", [None, is_decided])
@pytest.mark.parametrize("name", REFUSED)
def test_each_failure_has_its_own_status_and_never_shows_the_key(
    server: Loopback, caplog: pytest.LogCaptureFixture, name: str, stop: Any
):
    play, status, attempts = REFUSED[name]
    server.script = [play] * 3
    with caplog.at_level(logging.DEBUG):
        error = failure(lambda: chat(server).reply(SAID, 8, stop))
    assert (error.status, len(server.asked)) == (status, attempts)
    assert KEY not in f"{error} {error!r} {caplog.text}"


def test_google_s_wish_to_wait_stands_in_the_body(server: Loopback):
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]
    server.script = [answers(429, json.dumps({"error": {"details": details}}).encode())]
    waits = Waits()
    assert chat(server, wait=waits).reply(SAID, 8).text == "[Mute]"
    assert waits == [17.0]


def test_a_server_that_hangs_is_a_time_out(server: Loopback):
    server.usual = server.hangs
    error = failure(lambda: chat(server, timeout_s=0.2, retries=0).reply(SAID, 8, is_decided))
    assert error.status == Status.TIMEOUT


def test_more_than_20_mb_inline_are_never_sent(server: Loopback):
    assert GEMINI.limits.audio_total_s * 16000 * 2 * 4 / 3 < 20e6 == GEMINI.habits.request_max_bytes
    with pytest.raises(TooLongError):
        chat(server).reply([user(AudioPart(np.zeros(441 * 16000, np.float32)))], 8)
    endpoint = Endpoint(f"{server.origin}/v1beta", Key(KEY), header="x-goog-api-key")
    small = ServerChat("x", endpoint, GeminiFormat(MODEL), Limits(30.0), Habits(request_max_bytes=20_000))
    with pytest.raises(TooLongError, match="MB of request"):
        small.reply(SAID, 8)
    assert server.asked == []


def test_a_missing_key_is_named():
    error = failure(lambda: chat_from_options("gemini", {}, {}))
    assert error.status == Status.NO_KEY
    assert "GEMINI_API_KEY" in error.detail
