"""What comes of every fault, played through the real loop, executor, journal and process; see ``bench.faults``.

Each test names the harm. Under every fault: no call runs twice, none that ran is missing from the journal, and each
that was licensed gets exactly one end.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.clock import Pace
from agent.jsonl import read_events
from agent.sources import Silence
from bench.faults import FAULTS, PATIENT, Fault
from bench.process_faults import ROOT, Kills, interrupt, kill_at_random_instants
from bench.reliability import DOCUMENT, observe, table
from bench.stage import HALL, HELLO, KITCHEN, REPLIES, Observed, Stage, SteppedSource, call_text
from tests.support_tools import fast_directory

PAUSE = Silence(1.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=fast_directory()) as path:
        yield Path(path)


async def play(name: str, folder: Path) -> Observed:
    observed = _SEEN[name] = await FAULTS[name].play(folder)
    assert observed.violations == ()
    return observed


_SEEN: dict[str, Observed] = {}
"""What came of the faults that were played, so that the table need not play them again."""


NEXT_WORKS = ("done",)


# Tools: R35 ----------------------------------------------------------------------------------------------------------


async def test_a_tool_that_hangs_is_unknown_never_retried_and_holds_up_nothing(folder: Path) -> None:
    seen = await play("tool_hangs", folder)
    assert seen.outcomes == seen.journal == ("outcome_unknown", "done")
    assert (seen.started, seen.landed) == (2, 1), "one start each: the hung call is not tried again"


async def test_a_tool_that_blocks_its_thread_does_not_make_the_gate_deaf(folder: Path) -> None:
    seen = await play("tool_blocks_its_thread", folder)
    assert seen.outcomes == seen.journal == ("outcome_unknown", "done")


async def test_a_tool_that_raises_has_failed_and_the_next_command_runs(folder: Path) -> None:
    seen = await play("tool_raises", folder)
    assert seen.outcomes == seen.journal == ("failed", "done")
    assert "the lamp does not answer" in seen.details[0], "the owner is told why"
    assert seen.started == 2


async def test_a_tool_that_cannot_tell_is_not_called_failed_so_nobody_repeats_it_unasked(folder: Path) -> None:
    seen = await play("tool_cannot_tell", folder)
    assert seen.outcomes == seen.journal == ("outcome_unknown", "done")


async def test_a_tool_can_not_end_the_gate(folder: Path) -> None:
    seen = await play("tool_exits", folder)
    assert seen.outcomes == ("failed", "done")
    assert seen.ended == "end of source"


async def test_a_late_result_is_shown_and_its_effect_lands_once(folder: Path) -> None:
    seen = await play("tool_ends_late", folder)
    assert seen.outcomes == ("outcome_unknown", "done")
    assert seen.late == ("done",)
    assert seen.journal == ("outcome_unknown, late done", "done")
    assert (seen.started, seen.landed) == (2, 2)


# Disks ---------------------------------------------------------------------------------------------------------------


async def test_on_a_full_disk_nothing_runs_unrecorded_and_tools_come_back_with_the_disk(folder: Path) -> None:
    seen = await play("disk_full_under_the_journal", folder)
    assert seen.outcomes == ("refused", "refused", "done")
    assert all("journal" in detail for detail in seen.details[:2]), "it is said why"
    assert (seen.started, seen.journal) == (1, ("done",))


async def test_without_its_journal_nothing_runs_that_a_restart_could_not_find(folder: Path) -> None:
    seen = await play("journal_deleted", folder)
    assert seen.outcomes == ("refused", "refused")
    assert seen.started == 0


async def test_what_can_not_be_written_to_the_users_event_file_is_not_done(folder: Path) -> None:
    seen = await play("disk_full_under_the_events", folder)
    assert seen.decisions == ("mute not_addressed", "mute tools_off", "tool licensed")
    assert len(seen.failures) == 1, "said once"
    assert seen.started == 1
    kept = [event.seq for event in read_events(folder / "events.jsonl")]
    assert kept == sorted(set(kept)), "earlier and later lines are whole"
    assert kept[0] == 0


# People: R33, R34 ----------------------------------------------------------------------------------------------------


async def test_speech_right_after_a_tool_ran_does_not_run_it_again(folder: Path) -> None:
    seen = await play("model_repeats_the_call", folder)
    assert seen.decisions == ("tool licensed", "pardon argument_unheard")
    assert (seen.started, seen.landed) == (1, 1)


async def test_a_new_request_for_the_same_thing_is_a_new_call(folder: Path) -> None:
    seen = await play("owner_asks_again", folder)
    assert (seen.outcomes, seen.landed) == (("done", "done"), 2)


async def test_a_bystander_cancels_nothing_by_talking_cancelling_or_commanding(folder: Path) -> None:
    seen = await play("stranger_talks_during_a_call", folder)
    assert seen.outcomes == ("done", "done")
    assert seen.decisions[2:5] == ("mute other_speaker",) * 3
    assert seen.started == 2, "the stranger's command did not run"


async def test_a_bystander_can_not_take_back_a_call_in_its_grace_time(folder: Path) -> None:
    assert (await play("stranger_cancels_in_the_grace_time", folder)).outcomes == ("done",)


async def test_talking_on_does_not_cancel_a_call_that_runs(folder: Path) -> None:
    assert (await play("owner_talks_on_during_a_call", folder)).outcomes == ("done", "done")


# Cancellation: R34 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stopped_in_an_ear", "stopped_in_the_policy", "stopped_before_the_turn_is_over"])
async def test_stopped_before_the_decision_nothing_is_decided_or_run(name: str, folder: Path) -> None:
    seen = await play(name, folder)
    assert (seen.decisions, seen.journal, seen.started, seen.ended) == ((), (), 0, "stopped")


async def test_stopped_in_the_grace_time_the_call_is_cancelled_and_not_left_in_progress(folder: Path) -> None:
    seen = await play("stopped_in_the_grace_time", folder)
    assert (seen.outcomes, seen.journal, seen.started) == (("cancelled",), (), 0)


async def test_stopped_while_a_tool_ends_its_end_is_recorded(folder: Path) -> None:
    seen = await play("stopped_while_a_tool_ends", folder)
    assert (seen.outcomes, seen.journal, seen.landed) == (("done",), ("done",), 1)


async def test_stopped_while_a_tool_hangs_its_outcome_is_unknown_in_events_and_journal(folder: Path) -> None:
    seen = await play("stopped_while_a_tool_hangs", folder)
    assert (seen.outcomes, seen.journal) == (("outcome_unknown",), ("outcome_unknown",))


async def test_stopped_after_the_call_it_stays_done(folder: Path) -> None:
    seen = await play("stopped_after_the_call", folder)
    assert (seen.outcomes, seen.journal) == (("done",), ("done",))


async def test_the_owners_cancellation_in_time_runs_nothing_and_the_next_command_is_taken(folder: Path) -> None:
    seen = await play("owner_cancels_in_the_grace_time", folder)
    assert seen.outcomes == ("cancelled", "done")
    assert seen.started == 1


async def test_a_cancellation_that_comes_too_late_is_told_so_and_undoes_nothing_silently(folder: Path) -> None:
    seen = await play("owner_cancels_too_late", folder)
    assert seen.decisions[1] == "answer too_late"
    assert seen.outcomes == ("done", "done")


# Models --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("ear_exits", "mute ear_failed"),
        ("policy_raises", "pardon policy_failed"),
        ("policy_exits", "pardon policy_failed"),
        ("policy_hangs_and_answers_late", "pardon policy_timeout"),
        ("policy_writes_ten_thousand_words", "pardon unparseable"),
    ],
)
async def test_a_model_that_breaks_executes_nothing_and_the_next_turn_works(
    name: str, first: str, folder: Path
) -> None:
    seen = await play(name, folder)
    assert seen.decisions == (first, "tool licensed")
    assert (seen.outcomes, seen.started) == (NEXT_WORKS, 1)


async def test_a_model_that_answers_after_its_turn_went_on_is_not_obeyed(folder: Path) -> None:
    seen = await play("model_answers_after_its_turn_went_on", folder)
    assert seen.decisions == ("mute not_addressed",), "one decision, on all that was said"
    assert seen.started == 0


async def test_a_model_that_answers_after_the_session_is_not_obeyed(folder: Path) -> None:
    seen = await play("model_answers_after_the_stop", folder)
    assert (seen.decisions, seen.started) == ((), 0)


async def test_a_command_that_waited_too_long_is_dropped_and_said(folder: Path) -> None:
    seen = await play("command_is_stale", folder)
    assert seen.decisions == ("mute stale", "tool licensed")
    assert seen.started == 1


async def test_a_call_that_waited_past_its_grant_does_not_run_by_surprise(folder: Path) -> None:
    seen = await play("call_waits_past_its_grant", folder)
    assert seen.outcomes == ("refused", "done")
    assert "expired" in seen.details[0]
    assert seen.started == 1


TWO_CALLS = REPLIES[KITCHEN.text] + REPLIES[HALL.text]


@pytest.mark.parametrize(
    ("text", "first", "runs"),
    [
        pytest.param("", "pardon unparseable", 0, id="nothing"),
        pytest.param("   \n", "pardon unparseable", 0, id="blanks"),
        pytest.param("null", None, 0, id="null"),
        pytest.param(REPLIES[KITCHEN.text][:40], "pardon unparseable", 0, id="cut off"),
        pytest.param("Sure! " + REPLIES[KITCHEN.text] + " Done.", None, 0, id="prose around a call"),
        pytest.param(REPLIES[KITCHEN.text] * 2, None, None, id="the same call twice"),
        pytest.param(TWO_CALLS, None, 0, id="two calls"),
        pytest.param("[Mute]" + REPLIES[KITCHEN.text], None, 0, id="mute and a call"),
        pytest.param("[Pardon]" + REPLIES[KITCHEN.text], None, 0, id="pardon and a call"),
        pytest.param(call_text("switch_lamps", "lamp", "kitchen"), "pardon unknown_tool", 0, id="unknown tool"),
        pytest.param(call_text("Switch_lamp", "lamp", "kitchen"), "pardon unknown_tool", 0, id="another case"),
        pytest.param(call_text("switch_lamp", "lamp", "bedroom"), "pardon argument_unheard", 0, id="invented argument"),
        pytest.param(call_text("switch_lamp", "lamp", "../../kitchen"), None, 0, id="a path"),
        pytest.param(call_text("switch_lamp", "bulb", "kitchen"), None, 0, id="another argument"),
        pytest.param("I turned it on.", "answer addressed_question", 0, id="a claim without a call"),
    ],
)
async def test_what_a_model_may_write_instead_of_a_call_never_runs_half_or_twice(
    text: str, first: str | None, runs: int | None, folder: Path
) -> None:
    stage = Stage(folder, replies={**REPLIES, KITCHEN.text: text})
    seen = await stage.play(KITCHEN, Silence(12.0), HALL)  # when a question that it led to is over
    assert seen.violations == ()
    before = seen.started - 1
    assert before in ((0, 1) if runs is None else (runs,))
    assert seen.decisions[-1] == "tool licensed", "the next turn works"
    if first is not None:
        assert seen.decisions[0] == first
    claims = [event for event in stage.witness.events if event.event == "claim_without_execution"]
    assert len(claims) == (text == "I turned it on.")


async def test_a_busy_model_does_not_hold_up_the_loop_so_the_microphone_is_never_starved(folder: Path) -> None:
    """R29: the model blocks for 0.8 s; a heartbeat on the loop must not notice."""
    stage, gaps = Stage(folder), []
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def busy(text: str) -> None:
        ends_s = loop.time() + 0.8
        while loop.time() < ends_s:
            pass
        loop.call_soon_threadsafe(release.set)

    async def heartbeat() -> None:
        last_s = loop.time()
        while not release.is_set():
            await asyncio.sleep(0.005)
            gaps.append(loop.time() - last_s)
            last_s = loop.time()

    stage.policy.before = busy
    seen = await stage.play(KITCHEN, PAUSE, heartbeat, pace=Pace.WALL)
    assert seen.outcomes == ("done",)
    assert len(gaps) > 20, "the loop ran on while the model computed"


@pytest.mark.slow
async def test_collected_garbage_takes_no_running_call_with_it(folder: Path) -> None:
    async def slowly(tool: object) -> None:
        for _ in range(5):
            gc.collect()
            await asyncio.sleep(0.002)

    seen = await Stage(folder, before_tool=slowly, catalogue=PATIENT).play(
        HELLO, PAUSE, KITCHEN, PAUSE, HALL, pace=Pace.WALL
    )
    assert (seen.outcomes, seen.violations) == (("done", "done"), ())


async def test_no_task_outlives_a_session_however_it_ended(folder: Path) -> None:
    before = asyncio.all_tasks()
    for number, name in enumerate(("stopped_in_the_grace_time", "stopped_while_a_tool_hangs", "tool_ends_late")):
        place = folder / str(number)
        place.mkdir()
        await play(name, place)
    gc.collect()
    assert asyncio.all_tasks() == before


async def test_a_stepped_source_plays_every_frame_once() -> None:
    frames = [frame async for frame in SteppedSource([Silence(0.1), KITCHEN, Silence(0.1)])]
    assert [frame.start_sample for frame in frames] == [320 * number for number in range(len(frames))]
    assert len(frames) == 70


# Processes -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_a_model_computes_ends_at_once_with_every_event(tmp_path: Path) -> None:
    seen = interrupt(tmp_path, model="hang")
    assert (seen.exit_code, seen.last_event, seen.numbered) == (130, "session_ended", True)
    assert (seen.outcomes, seen.journal, seen.effects) == ((), (), 0)
    assert seen.seconds < 2.0
    assert "Traceback" not in seen.said


@pytest.mark.slow
def test_ctrl_c_while_a_tool_runs_leaves_its_outcome_unknown_and_not_in_progress(tmp_path: Path) -> None:
    seen = interrupt(tmp_path, tool="hang")
    assert (seen.exit_code, seen.last_event, seen.numbered) == (130, "session_ended", True)
    assert (seen.outcomes, seen.journal, seen.effects) == (("outcome_unknown",), ("outcome_unknown",), 1)
    assert seen.seconds < 2.0 + 1.0, "two seconds, and one for a busy machine"
    assert "Traceback" not in seen.said


@pytest.mark.parametrize("computes", [True, False])
def test_the_process_ends_with_its_own_exit_code_while_an_abandoned_model_computes(computes: bool) -> None:
    """An ordinary end destroys native libraries under the thread that is in them: a segmentation fault, not a code."""
    program = textwrap.dedent(f"""
        import atexit, threading
        from agent import cli, worker
        atexit.register(print, "libraries are taken down")
        thread, entered, hold = worker._Thread(), threading.Event(), threading.Event()
        thread._calls.put(lambda: (entered.set(), {computes} and hold.wait()))
        entered.wait()
        if not {computes}:
            while worker.calls_running():
                pass
        print("said before", flush=False)
        cli.end(7)
    """)
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 7
    assert "said before" in ran.stdout, "output is flushed"
    assert ("libraries are taken down" in ran.stdout) is not computes


def test_a_second_ctrl_c_ends_even_what_refuses_to_end(tmp_path: Path) -> None:
    seen = interrupt(tmp_path, tool="refuse to end", times=2)
    assert seen.exit_code == 130
    assert seen.seconds < 1.0
    assert (seen.journal, seen.effects) == (("outcome_unknown",), 1)


def _hold(kills: Kills) -> None:
    assert kills.violations == ()
    assert kills.kills > kills.finished, "most must die while they execute"
    assert kills.effects >= kills.done


@pytest.mark.slow
def test_killed_while_it_executes_no_call_runs_twice_and_none_is_lost(tmp_path: Path) -> None:
    _hold(kill_at_random_instants(tmp_path, kills=8, seed=1))


@pytest.mark.slow
def test_a_hundred_kills_run_nothing_twice_and_lose_nothing(tmp_path: Path) -> None:
    kills = kill_at_random_instants(tmp_path, kills=100, seed=2)
    _hold(kills)
    assert kills.unknown > 0, "some kills must fall between the two commits, or this proves nothing"


# The table -----------------------------------------------------------------------------------------------------------


async def test_the_table_of_faults_is_what_the_faults_come_to() -> None:
    async def known(fault: Fault) -> Observed:
        return _SEEN.get(fault.name) or await observe(fault)

    assert await table(known) in DOCUMENT.read_text(encoding="utf-8"), "run `python -m bench.reliability`"
