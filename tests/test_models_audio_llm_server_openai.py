"""Servers that speak OpenAI's chat completions: what each preset sends, what is made of answers, what failures are."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest

from bench.judges import endpoint as judges
from bench.judges.case import JudgeStoppedError
from gate.evidence import DistanceVerdict, SpeakerVerdict
from models.audio_llm import server_load
from models.audio_llm.conversation import (
    AudioPart,
    BackendError,
    BackendTimeoutError,
    ChatError,
    Limits,
    Status,
    Stopped,
    TooLongError,
    assistant,
    system,
    user,
)
from models.audio_llm.endpoint import Endpoint
from models.audio_llm.endpoint_costs import Budget, Prices
from models.audio_llm.endpoint_key import Key
from models.audio_llm.endpoint_pace import Pace
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.reading import is_decided
from models.audio_llm.server_chat import ServerChat
from models.audio_llm.server_load import CHATS, chat_from_options, policy_from_options
from models.audio_llm.server_presets import PRESETS
from models.audio_llm.wire_openai import OpenAiFormat
from models.components import UnknownComponentError
from models.protocols import Audio, HeardSegment, PolicyInput
from models.store_errors import ModelError
from tests.loopback_llm import Asked, Loopback, OpenAi, Play, answers, drops

KEY = "sk-very-secret-7"
ENVIRON = {"OPENAI_API_KEY": KEY, "VLLM_API_KEY": KEY, "STEPFUN_API_KEY": KEY}
VLLM = {
    "top_k": 1, "top_p": 1.0, "repetition_penalty": 1.0, "seed": 0, "skip_special_tokens": True,
}  # fmt: skip
WIRES: Mapping[str, tuple[str, dict[str, str], OpenAi]] = {
    "gpt-4o-audio": (
        "gpt-4o-audio", {}, OpenAi(KEY, "gpt-4o-audio-preview", {"modalities": ["text"], "seed": 0}),
    ),
    "vllm-qwen3-omni": (
        "vllm", {},
        OpenAi(KEY, "Qwen/Qwen3-Omni-30B-A3B-Instruct", {**VLLM, "stop_token_ids": [151645, 151643]}),
    ),
    "vllm-af3": (
        "vllm", {"preset": "af3"},
        OpenAi(KEY, "nvidia/audio-flamingo-3-hf", {**VLLM, "stop_token_ids": [151645, 151643]}),
    ),
    "vllm-kimi-audio": (
        "kimi-audio", {},
        OpenAi(KEY, "moonshotai/Kimi-Audio-7B-Instruct", {**VLLM, "stop_token_ids": [151644, 151645, 151667]},
               system_role=False, longest_s=30.0),
    ),
    "step-audio-r1.1": (
        "step-audio", {},
        OpenAi(KEY, "Step-Audio-R1.1",
               {**VLLM, "stop_token_ids": [151665], "skip_special_tokens": False, "add_generation_prompt": True,
                "continue_final_message": False},
               longest_s=25.0),
    ),
    "vllm-audio-url": (
        "vllm", {"audio": "audio_url", "enable_thinking": "off"},
        OpenAi(KEY, "Qwen/Qwen3-Omni-30B-A3B-Instruct",
               {**VLLM, "stop_token_ids": [151645, 151643], "chat_template_kwargs": {"enable_thinking": False}},
               part="audio_url"),
    ),
}  # fmt: skip
"""What each server must be sent, written down apart from the presets."""
USAGE = {"prompt_tokens": 110, "completion_tokens": 7, "prompt_tokens_details": {"audio_tokens": 10}}


def tone(seconds: float, hz: float = 220.0) -> Audio:
    t = np.arange(round(seconds * 16000)) / 16000
    return (0.3 * np.sin(2 * np.pi * hz * t)).astype(np.float32)


SOUND = tone(0.5)
SAID = [system("Be brief."), user(AudioPart(SOUND), "What now?")]


class Waits(list[float]):
    """Takes the place of waiting."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Loopback]]:
    """Makes servers; none of them may have been sent anything that its interface does not say."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    made: list[Loopback] = []

    def make(name: str = "gpt-4o-audio", *script: Play) -> Loopback:
        server = Loopback(WIRES[name][2])
        server.script = list(script)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()
        assert server.violations == []


def chat(server: Loopback, name: str = "gpt-4o-audio", **more: Any) -> ServerChat:
    """A chat of a preset whose endpoint waits for nothing."""
    preset = PRESETS[name]
    values: dict[str, Any] = {"timeout_s": 5.0, "retries": 2, "wait": Waits(), "pace": None}
    values |= {key: more.pop(key) for key in list(more) if key in values}
    endpoint = Endpoint(f"{server.origin}/v1", Key(KEY, "OPENAI_API_KEY"), **values)
    wire = OpenAiFormat(preset.model, preset.more)
    return ServerChat(name, endpoint, wire, preset.limits, preset.habits, **more)


def failure(talk: Callable[[], object]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        talk()
    return caught.value


# What is sent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", WIRES)
def test_each_server_is_sent_exactly_what_it_takes(serve: Callable[..., Loopback], name: str, streamed: bool):
    server = serve(name)
    chat_name, options, _ = WIRES[name]
    talk = chat_from_options(chat_name, {**options, "base_url": f"{server.origin}/v1"}, ENVIRON)
    reply = talk.reply(SAID, 64, (lambda text: False) if streamed else None)
    assert reply.text.endswith("[Mute]")
    assert reply.stopped is Stopped.TERMINATOR
    [asked] = server.asked
    assert asked.streamed is streamed
    assert asked.body["max_completion_tokens"] == 64
    [heard] = asked.sounds
    np.testing.assert_allclose(heard / 32767, SOUND, atol=2e-5)


def test_two_sounds_make_two_requests_that_differ_in_nothing_but_the_sound(serve: Callable[..., Loopback]):
    server = serve()
    for hz in (220.0, 330.0):
        chat(server).reply([user(AudioPart(tone(0.5, hz)))], 8)
    first, second = server.asked
    assert not np.array_equal(first.sounds[0], second.sounds[0])
    for asked in (first, second):
        asked.body["messages"][0]["content"][0]["input_audio"]["data"] = ""
    assert first.body == second.body


def test_messages_keep_their_roles_their_order_and_the_order_of_their_parts(serve: Callable[..., Loopback]):
    server = serve()
    chat(server).reply([system("S"), user("a"), assistant("b"), user("c", AudioPart(SOUND), "d")], 8)
    messages = server.asked[0].body["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[1]["content"] == "a"
    assert [part["type"] for part in messages[3]["content"]] == ["text", "input_audio", "text"]


def test_a_model_without_a_system_role_reads_the_instruction_in_the_first_user_message(
    serve: Callable[..., Loopback],
):
    server = serve("vllm-kimi-audio")
    chat(server, "vllm-kimi-audio").reply(SAID, 8)
    [message] = server.asked[0].body["messages"]
    assert message["role"] == "user"
    assert message["content"][0] == {"type": "text", "text": "Be brief."}
    assert [part["type"] for part in message["content"]] == ["text", "input_audio", "text"]


@pytest.mark.parametrize("name", ["gpt-4o-audio", "vllm-kimi-audio"])
def test_a_conversation_that_the_model_refuses_without_sound_is_not_sent_and_not_paid_for(
    serve: Callable[..., Loopback], name: str
):
    server = serve(name)
    assert failure(lambda: chat(server, name).reply([user("typed")], 8)).status == Status.WRONG_INPUT
    assert server.asked == []


def test_step_audio_is_given_a_long_recording_whole_in_parts_of_at_most_25_s(serve: Callable[..., Loopback]):
    server = serve("step-audio-r1.1", lambda handler, asked: server.says("no one</think>[Mute]")(handler, asked))
    rng = np.random.default_rng(0)
    recording = rng.uniform(-0.5, 0.5, 60 * 16000).astype(np.float32)
    policy = AudioLlmPolicy(chat(server, "step-audio-r1.1"))
    segment = HeardSegment((), SpeakerVerdict.UNSURE, DistanceVerdict.UNSURE)
    out = policy.propose(PolicyInput("t", segment, (), (), audio=recording))
    assert out.text == "[Mute]"
    sounds = server.asked[0].sounds
    assert len(sounds) == 3
    assert all(len(sound) <= 25 * 16000 for sound in sounds)
    np.testing.assert_allclose(np.concatenate(sounds) / 32767, recording, atol=2e-5)


def test_sound_beyond_the_limits_is_never_sent(serve: Callable[..., Loopback]):
    server = serve("vllm-kimi-audio")
    kimi = chat(server, "vllm-kimi-audio")
    with pytest.raises(TooLongError):
        kimi.reply([user(AudioPart(tone(30.1)))], 8)
    with pytest.raises(TooLongError):
        kimi.reply([user(AudioPart(SOUND), AudioPart(SOUND))], 8)
    assert server.asked == []


# What is made of answers ----------------------------------------------------------------------------------------------


def test_a_stream_in_pieces_with_pings_and_foreign_line_ends_is_the_text_that_was_written(
    serve: Callable[..., Loopback],
):
    server = serve()
    text = '<|TOOL|>{"name": "send_message", "params": {"text": "héllo, 你好"}}</|TOOL|>'
    for line_end in ("\n", "\r\n"):
        server.script = [server.streams(server.wire.events(list(text), usage=USAGE), line_end=line_end)]
        reply = chat(server).reply(SAID, 64, is_decided)
        assert (reply.text, reply.stopped, reply.tokens) == (text, Stopped.TERMINATOR, 7)


def test_a_reply_that_is_decided_closes_the_connection_so_that_the_server_stops_writing(
    serve: Callable[..., Loopback],
):
    server = serve()
    server.script = [server.streams_on(["[Mu", "te]", " because"])]
    talk = chat(server)
    reply = talk.reply(SAID, 64, is_decided)
    assert reply.text == "[Mute]"
    assert reply.stopped is Stopped.DECIDED
    assert server.left.wait(5)
    assert talk.reply(SAID, 64).text == "[Mute]"


def test_a_reply_cut_off_at_the_limit_says_so(serve: Callable[..., Loopback]):
    server = serve()
    server.usual = server.says("one two", reason="length")
    assert chat(server).reply(SAID, 2).stopped is Stopped.LENGTH
    assert chat(server).reply(SAID, 2, is_decided).stopped is Stopped.LENGTH


@pytest.mark.parametrize("stop", [None, is_decided])
def test_thoughts_that_the_prompt_opened_never_pass_for_a_reply(serve: Callable[..., Loopback], stop: Any):
    server = serve("step-audio-r1.1")
    talk = chat(server, "step-audio-r1.1")
    call = '<|TOOL|>{"name": "x", "params": {}}</|TOOL|>'
    server.script = [server.says(f"perhaps {call}", reason="length"), server.says("far away</think>[Mute]<|EOT|>")]
    policy = AudioLlmPolicy(talk)
    turn = PolicyInput("t", HeardSegment((), SpeakerVerdict.OWNER, DistanceVerdict.NEAR), (), (), audio=SOUND)
    assert talk.reply(SAID, 8, stop).text.startswith("<think>\nperhaps")
    assert talk.reply(SAID, 8, stop).text == "<think>\nfar away</think>[Mute]"
    server.script = [server.says(f"perhaps {call}", reason="length")]
    assert policy.propose(turn).text == ""


def test_thoughts_that_a_server_tells_apart_stand_in_their_tags(serve: Callable[..., Loopback]):
    server = serve("vllm-qwen3-omni")
    talk = chat(server, "vllm-qwen3-omni")
    events = server.wire.events(["[Mute]"], thoughts=["who", " spoke?"])
    server.script = [
        server.streams(events),
        server.says("[Mute]", message={"reasoning_content": "who spoke?"}),
        server.streams(server.wire.events([], "length", thoughts=["<|TOOL|> is"])),
    ]
    assert talk.reply(SAID, 8, lambda text: False).text == "<think>who spoke?</think>[Mute]"
    assert talk.reply(SAID, 8).text == "<think>who spoke?</think>[Mute]"
    assert talk.reply(SAID, 8, lambda text: False).text == "<think><|TOOL|> is"


def test_a_second_turn_does_not_pay_for_a_second_connection(serve: Callable[..., Loopback]):
    server = serve()
    talk = chat(server)
    for _ in range(3):
        talk.reply(SAID, 8, lambda text: False)
        talk.reply(SAID, 8)
    assert server.connections == 1


def test_turns_of_several_sessions_do_not_mix(serve: Callable[..., Loopback]):
    server = serve("vllm-qwen3-omni")

    def answer(handler: Any, asked: Any) -> None:
        server.says(f"heard {asked.body['messages'][-1]['content']}")(handler, asked)

    server.usual = answer
    talk = chat(server, "vllm-qwen3-omni")
    found: dict[int, str] = {}

    def session(number: int) -> None:
        found[number] = talk.reply([user(f"turn {number}")], 8, lambda text: False).text

    threads = [threading.Thread(target=session, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"heard turn {number}" for number in range(8)}


# Failures ------------------------------------------------------------------------------------------------------------

ONCE: Mapping[str, tuple[Play, Status]] = {
    "401": (answers(401, f"Incorrect API key provided: {KEY}".encode()), Status.DENIED),
    "402": (answers(402), Status.BUDGET),
    "403": (answers(403), Status.DENIED),
    "404": (answers(404), Status.BAD_REQUEST),
    "400": (answers(400, f'{{"error": {{"message": "bad {KEY}"}}}}'.encode()), Status.BAD_REQUEST),
    "400 filtered": (answers(400, b'{"error": {"code": "content_filter"}}'), Status.FILTERED),
    "413": (answers(413), Status.BAD_REQUEST),
    "307": (answers(307, b"", Location="http://127.0.0.1:9/elsewhere"), Status.BAD_REPLY),
    "no quota": (answers(429, b'{"error": {"code": "insufficient_quota"}}'), Status.BUDGET),
    "a page": (answers(200, f"<html>{KEY}</html>".encode(), "text/html"), Status.BAD_REPLY),
    "no type": (answers(200, b"{}", None), Status.BAD_REPLY),
}


@pytest.mark.parametrize("stop", [None, is_decided])
@pytest.mark.parametrize("name", ONCE)
def test_a_refusal_is_not_tried_again_and_has_its_own_status(
    serve: Callable[..., Loopback], caplog: pytest.LogCaptureFixture, name: str, stop: Any
):
    play, status = ONCE[name]
    server = serve("gpt-4o-audio", play)
    waits = Waits()
    with caplog.at_level(logging.DEBUG):
        error = failure(lambda: chat(server, wait=waits).reply(SAID, 8, stop))
    assert error.status == status
    assert len(server.asked) == 1
    assert waits == []
    assert KEY not in shown(error) + caplog.text


WHOLE: Mapping[str, tuple[bytes, Status]] = {
    "no JSON": (b"[Mute]", Status.BAD_REPLY),
    "nested without end": (b"[" * 100_000, Status.BAD_REPLY),
    "a list": (b"[]", Status.BAD_REPLY),
    "no choices": (b'{"choices": []}', Status.BAD_REPLY),
    "two choices": (b'{"choices": [{}, {}]}', Status.BAD_REPLY),
    "no text": (b'{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}', Status.BAD_REPLY),
    "no reason": (b'{"choices": [{"message": {"content": "[Mute]"}}]}', Status.BAD_REPLY),
    "a call": (b'{"choices": [{"message": {"content": ""}, "finish_reason": "tool_calls"}]}', Status.BAD_REPLY),
    "usage": (
        b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": {"completion_tokens": -1}}',
        Status.BAD_REPLY,
    ),
    "filtered": (b'{"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}', Status.FILTERED),
    "refused": (
        b'{"choices": [{"message": {"content": null, "refusal": "I cannot"}, "finish_reason": "stop"}]}',
        Status.FILTERED,
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_garbage_with_status_200_never_becomes_a_reply(serve: Callable[..., Loopback], name: str):
    body, status = WHOLE[name]
    server = serve("gpt-4o-audio", answers(200, body))
    assert failure(lambda: chat(server).reply(SAID, 8)).status == status
    assert len(server.asked) == 1


STREAMED: Mapping[str, tuple[list[str], Status]] = {
    "no JSON": (["[Mute]"], Status.BAD_REPLY),
    "another document": (['{"hello": 1}'], Status.BAD_REPLY),
    "a call": (['{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}'], Status.BAD_REPLY),
    "filtered": (
        ['{"choices": [{"delta": {"content": "[Mute"}, "finish_reason": null}]}',
         '{"choices": [{"delta": {}, "finish_reason": "content_filter"}]}'],
        Status.FILTERED,
    ),
    "an error": ([f'{{"error": {{"message": "too long {KEY}", "code": 400}}}}'], Status.BAD_REQUEST),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMED)
def test_garbage_in_a_stream_never_becomes_a_reply(serve: Callable[..., Loopback], name: str):
    data, status = STREAMED[name]
    server = serve()
    server.script = [server.streams([*data, "[DONE]"])]
    error = failure(lambda: chat(server).reply(SAID, 8, lambda text: False))
    assert error.status == status
    assert KEY not in shown(error)
    assert len(server.asked) == 1


def test_a_stream_that_holds_no_events_is_garbage(serve: Callable[..., Loopback]):
    server = serve("gpt-4o-audio", answers(200, b"<html>\n<body>\n", "text/event-stream"))
    assert failure(lambda: chat(server).reply(SAID, 8, is_decided)).status == Status.BAD_REPLY


PASSING: Mapping[str, tuple[Play, Status]] = {
    "429": (answers(429, b"slow down"), Status.RATE_LIMITED),
    "500": (answers(500, f"trace {KEY}".encode()), Status.SERVER_ERROR),
    "503": (answers(503), Status.SERVER_ERROR),
    "dropped": (drops, Status.UNREACHABLE),
}


@pytest.mark.parametrize("stop", [None, lambda text: False])
@pytest.mark.parametrize("name", PASSING)
def test_what_may_pass_is_tried_again_with_growing_patience_and_then_has_its_own_status(
    serve: Callable[..., Loopback], name: str, stop: Any
):
    play, status = PASSING[name]
    server = serve()
    waits = Waits()
    talk = chat(server, wait=waits)
    server.script = [play, play]
    reply = talk.reply(SAID, 8, stop)
    assert reply.text == "[Mute]"
    assert "3 attempts" in reply.note
    server.script = [play] * 3
    error = failure(lambda: talk.reply(SAID, 8, stop))
    assert error.status == status
    assert "3 attempts" in error.detail
    assert waits == [1.0, 2.0, 1.0, 2.0]
    assert KEY not in shown(error)


def test_the_server_s_own_wish_to_wait_is_heeded_up_to_a_bound(serve: Callable[..., Loopback]):
    server = serve()
    waits = Waits()
    for asked_for in ("7", "86400", "Wed, 21 Oct 2026 07:28:00 GMT"):
        server.script = [answers(429, b"", Retry_After=asked_for)]
        chat(server, wait=waits).reply(SAID, 8)
    assert waits == [7.0, 30.0, 1.0]


@pytest.mark.parametrize("stop", [None, is_decided])
def test_a_server_that_hangs_is_a_time_out_like_the_loop_s_own(serve: Callable[..., Loopback], stop: Any):
    server = serve()
    server.usual = server.hangs
    error = failure(lambda: chat(server, timeout_s=0.2, retries=1).reply(SAID, 8, stop))
    assert isinstance(error, BackendTimeoutError)
    assert isinstance(error, TimeoutError)
    assert len(server.asked) == 2


def test_a_stream_that_goes_on_for_ever_is_timed_out_as_a_whole(serve: Callable[..., Loopback]):
    server = serve()
    server.usual = server.streams_on(["<|TOOL|>"])
    error = failure(lambda: chat(server, timeout_s=0.3, retries=0).reply(SAID, 8, lambda text: False))
    assert error.status == Status.TIMEOUT
    assert server.left.wait(5)


def test_a_stream_that_breaks_off_is_begun_anew_and_its_half_is_never_a_reply(serve: Callable[..., Loopback]):
    server = serve()
    half = server.wire.events(["[Mute", "]"], None)
    talk = chat(server)
    server.script = [server.streams(half, ends=False), server.streams(half), server.says("[Mute] whole")]
    assert talk.reply(SAID, 8, lambda text: False).text == "[Mute] whole"
    server.script = [server.streams(half)] * 3
    assert failure(lambda: talk.reply(SAID, 8, lambda text: False)).status == Status.UNREACHABLE


def test_an_error_of_the_server_inside_of_a_stream_may_pass(serve: Callable[..., Loopback]):
    server = serve()
    server.script = [server.streams(['{"error": {"message": "engine died", "code": 500}}'])]
    assert chat(server).reply(SAID, 8, lambda text: False).text == "[Mute]"


def test_nobody_there_is_unreachable():
    endpoint = Endpoint("http://127.0.0.1:9/v1", timeout_s=2.0, retries=0)
    talk = ServerChat("x", endpoint, OpenAiFormat("x"), Limits(30.0))
    assert failure(lambda: talk.reply(SAID, 8)).status == Status.UNREACHABLE


# The key -------------------------------------------------------------------------------------------------------------


def shown(error: BaseException, its_locals: bool = True) -> str:
    """All that a log could show of an error."""
    report = traceback.TracebackException.from_exception(error, capture_locals=its_locals)
    return "".join(report.format()) + repr(error)


def test_the_key_shows_in_no_representation(serve: Callable[..., Loopback]):
    server = serve()
    talk = chat(server)
    talk.reply(SAID, 8)
    key = Key(KEY)
    parts = [talk, talk.model, *vars(talk).values(), *vars(vars(talk)["_endpoint"]).values(), key]
    assert all(KEY not in f"{part!r} {part}" for part in parts)


@pytest.mark.parametrize("value", ["sk-secret\nX-Evil: 1", "sk-sécret", "sk secret"])
def test_what_cannot_be_a_key_is_refused_before_a_client_would_repeat_it(value: str):
    error = failure(lambda: chat_from_options("gpt-4o-audio", {}, {"OPENAI_API_KEY": value}))
    assert error.status == Status.NO_KEY
    assert value not in shown(error, its_locals=False)
    assert "OPENAI_API_KEY" in error.detail


def test_a_missing_key_is_named_before_anything_is_sent():
    error = failure(lambda: chat_from_options("gpt-4o-audio", {}, {"OPENAI_API_KEY": " "}))
    assert error.status == Status.NO_KEY
    assert "OPENAI_API_KEY" in error.detail


def test_a_server_that_needs_no_key_is_sent_none(serve: Callable[..., Loopback]):
    server = serve("vllm-qwen3-omni")
    server.wire = replace(WIRES["vllm-qwen3-omni"][2], key=None)
    talk = chat_from_options("vllm", {"base_url": f"{server.origin}/v1"}, {})
    assert talk.reply(SAID, 8).text == "[Mute]"


# Costs and pace ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [None, lambda text: False])
def test_costs_are_counted_and_nothing_is_sent_once_they_are_used_up(serve: Callable[..., Loopback], stop: Any):
    server = serve()
    server.usual = server.says("[Mute]", usage=USAGE)
    # 100 tokens of text, 10 of sound, 7 written.
    prices = Prices(text_in=1000.0, audio_in=10_000.0, out=100_000.0)
    talk = chat(server, prices=prices, budget=Budget(1.5))
    assert talk.reply(SAID, 8, stop).note == "0.900000 USD, 0.9000 spent"
    talk.reply(SAID, 8, stop)
    error = failure(lambda: talk.reply(SAID, 8, stop))
    assert error.status == Status.BUDGET
    assert "1.8000 of 1.5000 USD" in error.detail
    assert len(server.asked) == 2


def test_a_reply_that_was_stopped_early_is_paid_for_too(serve: Callable[..., Loopback]):
    server = serve()
    server.script = [server.streams_on(["[Mute]"])]
    talk = chat(server, prices=Prices(0.0, 1e6, 0.0, audio_tokens_s=10.0), budget=Budget())
    assert talk.reply(SAID, 8, is_decided).note.startswith("about 5.000000 USD")
    assert talk.budget.spent_usd == pytest.approx(5.0)


def test_no_minute_sees_more_requests_than_allowed():
    held: list[float] = []
    minute = threading.Event()

    def wait(seconds: float) -> None:
        held.append(seconds)
        minute.wait(10)

    pace = Pace(2, longest_s=0.05, wait=wait)
    pace.start()
    pace.start()
    assert failure(pace.start).status == Status.RATE_LIMITED
    minute.set()
    Pace(2, longest_s=5.0, wait=wait).start()
    assert set(held) == {60.0}


def test_a_place_comes_back_after_its_minute():
    pace = Pace(1, longest_s=5.0, wait=lambda seconds: None)
    for _ in range(3):
        pace.start()


def test_retries_keep_to_the_pace_too(serve: Callable[..., Loopback]):
    server = serve("gpt-4o-audio", answers(500), answers(500))
    minute = threading.Event()

    def wait(seconds: float) -> None:
        minute.wait(10)

    pace = Pace(2, longest_s=0.05, wait=wait)
    assert failure(lambda: chat(server, pace=pace).reply(SAID, 8)).status == Status.RATE_LIMITED
    assert len(server.asked) == 2
    minute.set()


# Options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt-5", {}, "step-audio"),
        ("vllm", {"presets": "af3"}, "preset"),
        ("vllm", {"preset": "af4"}, "af3"),
        ("vllm", {"base_url": f"http://me:{KEY}@host/v1"}, "environment"),
        ("vllm", {"base_url": "localhost:8000"}, "http"),
        ("vllm", {"timeout_s": "0"}, "timeout_s"),
        ("vllm", {"timeout_s": "nan"}, "timeout_s"),
        ("vllm", {"retries": "-1"}, "retries"),
        ("vllm", {"budget_usd": "5"}, "usd_text_in"),
        ("openai-compatible", {"base_url": "http://h/v1"}, "model"),
        ("desta", {}, "VOICEGATE_DESTA_PYTHON"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_word_that_helps(name: str, options: dict[str, str], words: str):
    with pytest.raises(UnknownComponentError, match=words) as caught:
        chat_from_options(name, options, {})
    assert KEY not in shown(caught.value, its_locals=False)


def test_a_policy_says_at_the_start_that_its_key_is_missing():
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        policy_from_options("gpt-4o-audio", {}, {})


def test_a_thinking_model_gets_room_for_its_thoughts(serve: Callable[..., Loopback]):
    server = serve("step-audio-r1.1")
    server.usual = server.says("far</think>[Mute]")
    policy = policy_from_options("step-audio", {"base_url": f"{server.origin}/v1"}, ENVIRON)
    turn = PolicyInput("t", HeardSegment((), SpeakerVerdict.OWNER, DistanceVerdict.NEAR), (), (), audio=SOUND)
    assert policy.propose(turn).text == "[Mute]"
    assert server.asked[0].body["max_completion_tokens"] > 4000


@pytest.mark.parametrize("name", sorted(CHATS.keys() - {"echo"}))
def test_the_registry_can_load_each_by_one_line(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    function = getattr(server_load, f"load_{name.replace('-', '_')}")
    with pytest.raises(UnknownComponentError, match="no_such"):
        function(None, 2, {"no_such": "1", "base_url": "http://h/v1", "model": "m", "python": "p"})


def test_another_request_is_another_model_in_the_record():
    def sha(**options: str) -> str:
        return chat_from_options("vllm", options, {}).model.sha256

    assert sha() == sha(timeout_s="5", base_url="http://elsewhere/v1")
    assert len({sha(), sha(model="gate"), sha(preset="af3"), sha(enable_thinking="on")}) == 4


def test_a_chat_failure_is_never_a_policy_output(serve: Callable[..., Loopback]):
    server = serve("vllm-qwen3-omni", answers(401))
    policy = AudioLlmPolicy(chat(server, "vllm-qwen3-omni"))
    turn = PolicyInput("t", HeardSegment((), SpeakerVerdict.OWNER, DistanceVerdict.NEAR), (), (), audio=SOUND)
    with pytest.raises(ChatError):
        policy.propose(turn)


# The judges' client --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("play", "words"),
    [
        (answers(429, b'{"error": {"code": "insufficient_quota"}}'), "quota"),
        (answers(401, KEY.encode()), "OPENAI_API_KEY"),
    ],
)
def test_judges_ask_through_the_same_client_and_stop_when_nothing_more_will_come(
    serve: Callable[..., Loopback], play: Play, words: str
):
    server = serve("gpt-4o-audio", play)
    server.wire = JudgeWire()
    with pytest.raises(JudgeStoppedError, match=words) as caught:
        judges.Endpoint(f"{server.origin}/v1", KEY, sleep=Waits()).complete("gpt-4o-2024-11-20", "judge", "this")
    assert KEY not in shown(caught.value)
    assert len(server.asked) == 1


def test_what_cannot_be_a_key_is_refused_for_a_judge_too():
    with pytest.raises(judges.EndpointError, match="OPENAI_API_KEY") as caught:
        judges.Endpoint("http://127.0.0.1:9/v1", "sk secret")
    assert "sk secret" not in str(caught.value)


class JudgeWire(OpenAi):
    """What a judge sends: text alone, not streamed."""

    def __init__(self) -> None:
        super().__init__(KEY, "gpt-4o-2024-11-20", {})

    def check(self, asked: Asked) -> None:
        """See ``Wire``."""
        assert asked.headers["authorization"] == f"Bearer {self.key}"
        assert asked.body.keys() == {"model", "messages", "temperature", "max_tokens"}


# Step-Audio's template -----------------------------------------------------------------------------------------------


def test_the_documented_template_renders_the_roles_and_sounds_that_the_model_knows():
    page = Path(__file__).parent.parent.joinpath("docs", "audio-llm-servers.md").read_text(encoding="utf-8")
    template = page.partition("<<'EOF'\n")[2].partition("\nEOF\n")[0]
    parts = [{"type": "audio"}, {"type": "audio"}, {"type": "text", "text": "What now?"}]
    for content in (parts, "<audio_patch>\n<audio_patch>\nWhat now?"):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
        out = jinja2.Environment().from_string(template).render(messages=messages, add_generation_prompt=True)
        assert out == (
            "<|BOT|>system\nBe brief.<|EOT|><|BOT|>human\n<audio_patch><audio_patch>What now?<|EOT|>"
            "<|BOT|>assistant\n<think>\n"
        )
