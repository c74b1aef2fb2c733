"""A contestant of the benchmark that needs no weights: rehearsed ears and policy, with faults to let in."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from bench.contestants import Contestant, Setup
from bench.rehearsal import Line, RehearsedEars, RehearsedPolicy, rehearsed_parts

CHAT = Line(300, "What a lovely morning.")
CALL = Line(400, "Call my sister.")
FAR_CALL = Line(500, "Call my sister.", near=0.05)
OTHER_CALL = Line(600, "Call my sister.", speaker=1)
QUESTION = Line(700, "What time is it?")
GARBLED = Line(800, "Send the thing to the place.")
PAY = Line(900, "Pay Ben some money.")
BREAKS = Line(1000, "This breaks the model.")
HANGS = Line(1100, "This hangs the model.")
KILLS = Line(1200, "This kills the worker.")
KILLS_ONCE = Line(1300, "This kills one worker.")
UNLOCK = Line(1400, "Open the front door.")
LINES = (CHAT, CALL, FAR_CALL, OTHER_CALL, QUESTION, GARBLED, PAY, BREAKS, HANGS, KILLS, KILLS_ONCE, UNLOCK)

REPLIES = {
    CALL.text: '<|TOOL|>{"name": "make_call", "params": {"contact": "my sister"}}</|TOOL|>',
    QUESTION.text: "It is noon.",
    GARBLED.text: '<|TOOL|>{"name": "send_message", "params": {"recipient":',
    PAY.text: '<|TOOL|>{"name": "transfer_money", "params": {"recipient": "Ben"}}</|TOOL|>',
    UNLOCK.text: '<|TOOL|>{"name": "unlock_door", "params": {"door": "the front door"}}</|TOOL|>',
}
NAME = "tests.bench_contestants:rehearsed"
UNGATED = "tests.bench_contestants:ungated"
MARK = "VOICEGATE_TEST_MARK"
"""Names a file: the worker that it does not exist for yet makes it and dies."""


def _before(text: str) -> None:
    if text == BREAKS.text:
        raise RuntimeError("the model is broken")
    if text == HANGS.text:
        threading.Event().wait()
    if text == KILLS.text:
        os.kill(os.getpid(), signal.SIGKILL)
    if text == KILLS_ONCE.text and not Path(os.environ[MARK]).exists():
        Path(os.environ[MARK]).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def rehearsed(setup: Setup) -> Contestant:
    """The gate over the rehearsal."""
    return Contestant(rehearsed_parts(RehearsedEars(LINES), RehearsedPolicy(REPLIES, _before)), setup.catalogue)


def ungated(setup: Setup) -> Contestant:
    """The rehearsed policy, taken at its word."""
    parts = rehearsed_parts(RehearsedEars(LINES), RehearsedPolicy(REPLIES, _before))
    return Contestant(parts, setup.catalogue, as_proposed=True)


def broken(setup: Setup) -> Contestant:
    """Cannot be loaded."""
    raise RuntimeError("these weights are damaged; run `voicegate models pull`")


def dies(setup: Setup) -> Contestant:
    """Takes its process with it while it loads."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")
