"""The failures: none is left out, none is made up, the dangerous come first, and each can be heard and explained."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile

from agent.events import DamageRecord
from bench.judgements import Kind
from bench.measures import (
    EAR_C,
    GATE,
    SELF_TALK,
    SIDE_TALK,
    Hit,
    Played,
    ear_repair,
    obeys_proximity_rule,
)
from bench.report.evidence import MOST_CHARS, Evidence, evidence_of
from bench.report.failures import KINDS, Failures, failures_of, kind_of, weighs_on
from bench.report.failures_html import failures_html
from bench.report.players import AudioMode, Player, Recordings
from bench.report.runs import ReportedRun
from bench.report.writing import ReportOptions, write_report
from bench.trials import Trial
from tests.bench_contestants import REPLIES, UNLOCK
from tests.bench_harness import decision, played
from tests.report_harness import Page, pretend_corpus, pretend_run, reported, write_played


def silent(runs: Any, trial: Trial) -> Player:
    """No recording."""
    return Player(why_not="none")


def listed(*folders: Path) -> Failures:
    """The failures of some runs."""
    return failures_of(reported(*folders), evidence_of, silent)


def facts(evidence: Evidence) -> dict[str, str]:
    """What is told about the first decision, by name."""
    return dict(evidence.decisions[0].facts)


# Which trials ---------------------------------------------------------------------------------------------------------


def credit(one: Played) -> Hit:
    """Whether a trial is right, as its family's own measure has it."""
    match one.trial.family:
        case "self_talk":
            return SELF_TALK.hit(one)
        case "side_talk":
            return SIDE_TALK.hit(one)
        case "ear":
            return EAR_C.hit(one) if one.trial.expected.action == "answer" else ear_repair(one)
        case _:
            return obeys_proximity_rule(one)


def every_outcome() -> list[Played]:
    """Each family with each right action and each thing that can come of it."""
    right: list[tuple[str, str, str, str | None]] = [
        ("speaker_switch", "same/near/0", "tool", "make_call"), ("speaker_switch", "diff/near/0", "mute", None),
        ("speaker_switch", "text_only", "tool", "make_call"), ("self_talk", "planning", "mute", None),
        ("side_talk", "assistant_first", "tool", "make_call"), ("side_talk", "bystander_first", "answer", None),
        ("ear", "original", "answer", None), ("ear", "semantic_degrading/noise", "pardon", None),
    ]  # fmt: skip
    answer = decision("answer", answer="noon", turn="t0002")
    done: list[dict[str, Any]] = [
        {"did": "mute"}, {"did": "pardon", "said": "Pardon?"}, {"did": "answer", "said": "noon"},
        {"did": "tool", "ran": "make_call"}, {"did": "tool", "ran": "send_message"},
        {"did": "tool", "decisions": [decision("tool", "make_call", outcome="refused")]},
        {"did": "tool", "decisions": [decision("tool", "make_call"), answer]},
        {"did": "tool", "decisions": [decision("tool", "make_call"), decision("tool", "send_message", turn="t2")]},
        {"did": None, "status": "error"}, {"did": None, "status": "unparseable"},
        {"did": None, "status": "timeout", "decisions": [decision("tool", "send_message")]},
    ]  # fmt: skip
    verdicts: dict[str, list[list[tuple[Kind, str]]]] = {
        "side_talk": [[], *([("side_talk", name)] for name in ("assistant", "bystander", "both", "neither"))],
        "ear": [
            [], [("answer", "correct")], [("answer", "incorrect")],
            *([("repair", name)] for name in ("explicit_repair", "generic_refusal", "other")),
        ],
    }  # type: ignore[dict-item]  # fmt: skip
    made = []
    for number, ((family, condition, action, tool), what) in enumerate(itertools.product(right, done)):
        for index, given in enumerate(verdicts.get(family, [[]])):
            made.append(
                played(
                    f"t{number}.{index}",
                    family,
                    condition,
                    action,
                    tool=tool,
                    target="make_call",
                    verdicts=given,
                    text="Call my sister." if condition == "text_only" else None,
                    **what,
                )
            )
    return made


def test_exactly_the_trials_that_are_not_right_are_failures():
    outcomes = every_outcome()
    assert len(outcomes) > 150
    for one in outcomes:
        kind, known = kind_of(one), credit(one)
        told = (one.trial.family, one.trial.expected.action, one.result.action, one.result.tools_run, known, kind)
        if known is None:
            waits = [other for other in KINDS if other.waits(one)]
            # A missed Pardon is one whatever the judge may see in the answer that stands in its place.
            assert waits or (kind is not None and kind.name == "missed-pardon"), told
        elif known == 1.0:
            # The one thing that two measures see differently: an answer that the judge takes for a repair.
            judged = one.trial.expected.action == "pardon" and one.result.action == "answer"
            assert kind is None or (judged and kind.name == "missed-pardon"), told
        else:
            assert kind is not None, told


def test_every_kind_of_failure_can_happen():
    found = {kind.name for one in every_outcome() if (kind := kind_of(one)) is not None}
    assert found >= {kind.name for kind in KINDS} - {"spoke"}
    spoke = played("x", "self_talk", "planning", "mute", "answer", said="Good idea.")
    assert kind_of(spoke) is KINDS[4]
    assert KINDS[4].name == "spoke"


def test_each_rate_of_the_gate_counts_as_many_trials_as_are_listed_with_it(tmp_path: Path):
    outcomes = every_outcome()
    run = reported(write_played(tmp_path / "run", outcomes))[0]
    listed_in = [
        measure
        for group in failures_of((run,), evidence_of, silent).groups
        for failed in group.trials
        for one in failed.runs
        for measure in one.weighs_on
    ]
    for measure in GATE:
        rate = run.summary["gate"][measure.name.removeprefix("gate.")]
        assert listed_in.count(measure.name) == rate["k"], measure.name
        assert rate["k"] > 0
    assert sum(len(weighs_on(one)) for one in outcomes) == len(listed_in), "a hit is in no trial that is not listed"


def test_the_dangerous_come_first_and_a_trial_stands_in_one_place(tmp_path: Path):
    found = listed(write_played(tmp_path / "run", every_outcome()))
    dangerous = [group.kind.dangerous for group in found.groups]
    assert dangerous == sorted(dangerous, reverse=True)
    assert found.groups[0].kind.name == "false-execution"
    assert found.groups[1].kind.name == "wrong-tool"
    ids = [failed.trial.id for group in found.groups for failed in group.trials]
    assert len(ids) == len(set(ids))


def test_a_tool_that_ran_before_a_failure_is_a_false_execution_and_not_an_error():
    one = played("x", "self_talk", "x", "mute", None, status="timeout", decisions=[decision("tool", "make_call")])
    kind = kind_of(one)
    assert kind is not None
    assert kind.name == "false-execution"


def test_runs_that_failed_the_same_trial_alike_stand_together_and_the_others_are_named(tmp_path: Path):
    def run(name: str, did: str, ran: str | None = None) -> Path:
        return write_played(tmp_path / name, [played("t", "self_talk", "x", "mute", did, ran=ran)])

    found = listed(
        run("a", "tool", "make_call"), run("b", "mute"), run("c", "tool", "send_message"), run("d", "pardon")
    )
    execution, pardon = found.groups
    assert [(one.run, one.done) for one in execution.trials[0].runs] == [(0, "ran make_call"), (2, "ran send_message")]
    assert execution.trials[0].others == ((1, "stayed silent", ""), (3, "asked again", "unneeded pardon"))
    assert [execution.count(run) for run in range(4)] == [1, 0, 1, 0]
    assert [one.run for one in pardon.trials[0].runs] == [3]
    content = failures_html(found)
    assert "The other runs: B b stayed silent; D d asked again (unneeded pardon)." in Page(content).text


def test_a_trial_that_runs_have_labelled_differently_is_not_taken_for_one(tmp_path: Path):
    first = write_played(tmp_path / "a", [played("t", "direct", "x", "mute", "tool", ran="make_call")])
    second = write_played(
        tmp_path / "b", [played("t", "direct", "x", "mute", "tool", ran="make_call", target="make_call")]
    )
    assert len(listed(first, second).groups[0].trials) == 2


def test_a_page_without_failures_says_so(tmp_path: Path):
    found = listed(write_played(tmp_path / "run", [played("t", "self_talk", "x", "mute", "mute")]))
    assert failures_html(found) == "<p>No trial went wrong.</p>"


def test_long_lists_start_folded_and_short_lists_of_dangerous_ones_open(tmp_path: Path):
    def content(count: int, did: str) -> str:
        made = [played(f"t{i}", "self_talk", "x", "mute", did, ran="make_call") for i in range(count)]
        return failures_html(listed(write_played(tmp_path / f"{did}{count}", made)))

    assert '<details class="kind dangerous" id="failures-false-execution" open>' in content(3, "tool")
    assert '<details class="kind dangerous" id="failures-false-execution">' in content(40, "tool")
    assert '<details class="kind" id="failures-unneeded-pardon">' in content(3, "pardon")


# The evidence ---------------------------------------------------------------------------------------------------------


def test_the_scores_stand_beside_what_the_call_s_risk_demanded(tmp_path: Path):
    near_miss = decision(
        "mute", "unlock_door", params={"door": "the front door"}, speaker=0.61, near=0.95, words=UNLOCK.text,
        raw=REPLIES[UNLOCK.text], proposed="tool", reason="speaker_unsure", detail="close", outcome=None,
    )  # fmt: skip
    one = played("t", "direct", "x", "tool", "mute", tool="unlock_door", decisions=[near_miss])
    found = listed(write_played(tmp_path / "run", [one]))
    told = facts(found.groups[0].trials[0].runs[0].evidence)
    assert told["Speaker"] == (
        "owner; score 0.610 falls short of the 0.630 needed for a call of high risk; other below 0.400"
    )
    assert told["Distance"] == (
        "near; near probability 0.950 reaches the 0.800 needed for a call of high risk; far below 0.200"
    )
    assert told["Reason"] == "It is not certain enough who spoke. [speaker_unsure]"
    assert told["In particular"] == "close"
    assert told["Call"] == 'unlock_door {"door": "the front door"} (not called)'
    assert told["Words"] == "Open (0.95) the (0.95) front (0.95) door. (0.95)"
    assert told["The policy proposed"] == f"tool: {REPLIES[UNLOCK.text]}"
    assert told["Damage"] == "none found"


def test_what_could_not_be_measured_is_told_as_such(tmp_path: Path):
    made = decision("tool", "make_call", speaker=None, near=None)
    blind = made.model_copy(
        update={"evidence": made.evidence.model_copy(update={"damage": None, "overlapped": True, "source_gap": True})}
    )
    found = listed(write_played(tmp_path / "run", [played("t", "direct", "x", "mute", "tool", decisions=[blind])]))
    told = facts(found.groups[0].trials[0].runs[0].evidence)
    assert told["Speaker"] == "owner; no score, 0.600 needed for a call of medium risk; other below 0.400"
    assert told["Distance"].startswith("near; no near probability, 0.800 needed")
    assert told["Damage"] == "not measured"
    assert told["Also"] == "two people at once, samples lost inside"
    assert told["Words"] == "none"


def test_masked_stretches_and_the_latency_are_told(tmp_path: Path):
    made = decision("answer", answer="Paris.", at_s=2.84)
    damage = (DamageRecord(span_s=(1.25, 1.5), kind="masked", probability=0.931),)
    made = made.model_copy(update={"evidence": made.evidence.model_copy(update={"damage": damage})})
    one = played("t", "ear", "semantic_degrading/noise", "pardon", "answer", said="Paris.", decisions=[made])
    failed = listed(write_played(tmp_path / "run", [one])).groups[0].trials[0].runs[0]
    assert facts(failed.evidence)["Damage"] == "masked 1.25 to 1.50 s (0.93)"
    assert ("Latency", "0.840 s from the labelled end of speech to the decision") in failed.evidence.facts
    assert failed.done == "answered"


def test_all_of_a_failure_is_in_the_page(tmp_path: Path):
    made = decision("answer", answer="She likes Paris.", reason="addressed_question", words="I like the most")
    one = played(
        "q-7.deg", "ear", "semantic_degrading/noise", "pardon", "answer", said="She likes Paris.", decisions=[made],
        verdicts=[("repair", "other")],
    )  # fmt: skip
    trial = one.trial.model_copy(update={"question": "Which city?"})
    folder = write_played(tmp_path / "run", [Played(trial, one.result, one.judgements)])
    text = Page(failures_html(listed(folder))).text
    for told in (
        "q-7.deg", "ear, semantic_degrading/noise", "Which city?", "1.00 to 2.00 s", "trigger", "right: ask again",
        "A run: answered", "A question to the assistant. [addressed_question]", "She likes Paris.", "repair: other",
        "gate.missed_pardon", "the (0.95)", "Decision t0001, 1.00 to 2.00 s: answer",
    ):  # fmt: skip
        assert told in text, told


def test_a_novel_in_a_log_is_cut_and_said_to_be(tmp_path: Path):
    one = played("t", "direct", "x", "mute", "answer", said="word " * 10_000)
    text = failures_html(listed(write_played(tmp_path / "run", [one])))
    assert len(text) < 10 * MOST_CHARS
    assert "49,000 more characters are in the log" in text


# The recordings -------------------------------------------------------------------------------------------------------


def tone(path: Path, seconds: float = 0.5) -> Path:
    """A recording of silence."""
    soundfile.write(path, np.zeros(round(16_000 * seconds), np.float32), 16_000)
    return path


def run_of(folder: Path, corpus: Path | None, count: int = 1) -> tuple[ReportedRun, tuple[Trial, ...]]:
    """A run of false executions; its configuration names the corpus, if any."""
    made = [played(f"t{i}", "self_talk", "x", "mute", "tool", ran="make_call") for i in range(count)]
    manifest = {"name": "manifest.jsonl", "sha256": "0" * 64}
    if corpus is not None:
        manifest["folder"] = str(corpus)
    run = reported(write_played(folder, made, manifest=manifest))[0]
    return run, tuple(one.trial for one in made)


def test_a_link_leads_from_the_page_to_the_recording(tmp_path: Path):
    corpus = tmp_path / "corpus é 100%" / "deep"
    corpus.mkdir(parents=True)
    tone(corpus / "a.wav")
    run, trials = run_of(tmp_path / "runs" / "one", corpus)
    page = tmp_path / "pages" / "today"
    player = Recordings(AudioMode.LINK, page, 0).player([run], trials[0])
    assert player.seconds == 0.5
    assert player.source is not None
    assert not player.source.startswith("/")
    assert (page / unquote(player.source)).resolve() == (corpus / "a.wav").resolve()
    assert set(player.source).isdisjoint(" é\"'<>")


def test_the_folder_of_the_corpus_may_be_told_from_the_run_s_own(tmp_path: Path):
    tone(tmp_path / "a.wav")
    run, trials = run_of(tmp_path / "runs" / "one", Path("../.."))
    assert Recordings(AudioMode.LINK, tmp_path, 0).player([run], trials[0]).source == "a.wav"


def test_a_manifest_that_is_named_gives_the_recordings_too(tmp_path: Path):
    trials = pretend_corpus(tmp_path / "corpus", commands=1, questions=1)
    folder = pretend_run(tmp_path / "run", trials, skill=0.0, seed=1, gate=False)
    manifest = tmp_path / "corpus" / "manifest.jsonl"
    write_report(ReportOptions((folder,), tmp_path / "report.html", manifest=manifest))
    players = Page((tmp_path / "report.html").read_text(encoding="utf-8")).named("audio")
    assert len(players) > 5
    for player in players:
        assert (tmp_path / unquote(player["src"] or "")).is_file()
    write_report(ReportOptions((folder,), tmp_path / "report.html"))
    content = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert content.named("audio") == []
    assert "Where the corpus lies is not recorded; name its manifest with --manifest to hear this." in content.text


def test_what_is_not_there_or_no_recording_is_said_and_gets_no_player(tmp_path: Path):
    run, trials = run_of(tmp_path / "run", tmp_path)
    recordings = Recordings(AudioMode.LINK, tmp_path, 0)
    missing = recordings.player([run], trials[0])
    assert (missing.source, missing.why_not) == (None, "The recording is not there any more: a.wav")
    (tmp_path / "a.wav").write_text("root:x:0:0", encoding="utf-8")
    assert "no recording that can be read" in recordings.player([run], trials[0]).why_not
    typed = trials[0].model_copy(update={"audio": None, "text": "Call."})
    assert recordings.player([run], typed).why_not == "Typed: there is no recording."
    assert "left out" in Recordings(AudioMode.NONE, tmp_path, 0).player([run], trials[0]).why_not


def test_a_file_that_is_no_recording_is_never_embedded_so_a_manifest_cannot_carry_secrets_out(tmp_path: Path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the password", encoding="utf-8")
    run, trials = run_of(tmp_path / "run", tmp_path / "corpus")
    for name in ("../secret.txt", str(secret)):
        player = Recordings(AudioMode.EMBED, tmp_path, 2**20).player(
            [run], trials[0].model_copy(update={"audio": name})
        )
        assert player.source is None


def test_recordings_are_embedded_up_to_the_limit_and_the_rest_is_said(tmp_path: Path):
    size = tone(tmp_path / "a.wav").stat().st_size
    run, trials = run_of(tmp_path / "run", tmp_path, count=3)
    recordings = Recordings(AudioMode.EMBED, tmp_path, 2 * size + 10)
    players = [recordings.player([run], trial) for trial in trials]
    assert [player.source is not None for player in players] == [True, True, False]
    assert "at most" in players[2].why_not
    assert (recordings.embedded, recordings.left_out) == (2, 1)
    head, _, content = (players[0].source or "").partition(",")
    assert head == "data:audio/wav;base64"
    assert base64.b64decode(content) == (tmp_path / "a.wav").read_bytes()


def test_the_page_says_how_its_recordings_come(tmp_path: Path):
    size = tone(tmp_path / "a.wav").stat().st_size
    run, _ = run_of(tmp_path / "run", tmp_path, count=2)
    for mode, limit, told in (
        (AudioMode.EMBED, size * 1.5 / 2**20, "holds 1 recording of at most"),
        (AudioMode.EMBED, size * 1.5 / 2**20, "the most dangerous failures first; 1 recording did not fit."),
        (AudioMode.LINK, 1.0, "Recordings are linked, not contained"),
        (AudioMode.NONE, 1.0, "Recordings are left out of this page."),
    ):
        write_report(ReportOptions((run.folder,), tmp_path / "report.html", audio=mode, embed_mib=limit))
        assert told in Page((tmp_path / "report.html").read_text(encoding="utf-8")).text


@pytest.mark.parametrize(("suffix", "media"), [("flac", "audio/flac"), ("ogg", "audio/ogg")])
def test_other_formats_that_browsers_play_are_named_as_what_they_are(tmp_path: Path, suffix: str, media: str):
    tone(tmp_path / f"a.{suffix}")
    run, trials = run_of(tmp_path / "run", tmp_path)
    trial = trials[0].model_copy(update={"audio": f"a.{suffix}"})
    source = Recordings(AudioMode.EMBED, tmp_path, 2**20).player([run], trial).source
    assert source is not None
    assert source.startswith(f"data:{media};base64,")
