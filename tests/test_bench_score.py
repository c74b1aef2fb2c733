"""The summary, against figures worked out by hand. What was not run, or not judged, is null and never zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.judgements import JUDGEMENTS, Judgements, JudgementsError
from bench.measures import EAR_C, SIDE_TALK, Played, ear_competence, ear_repair, normalised, side_talk_correct
from bench.rates import measured
from bench.results import TrialTiming, deciding, most_consequential
from bench.run import run
from bench.score import SUMMARY, ScoreError, score, summarise
from bench.score_ear import ear_scores
from bench.score_gate import gate_scores
from bench.score_times import compute_scores, latency_s, latency_scores, throughput
from bench.score_vgbench import EIGHT_CONDITIONS, proximity_rule, vgbench_scores
from bench.stats import wilson
from bench.trials import Segment, load_manifest, write_manifest
from tests.bench_harness import decision, here, options, played, small_corpus


def shares(value: Any) -> tuple[int, float] | None:
    """``(n, k)`` of a rate."""
    return None if value is None else (value["n"], value["k"])


# The trial's action ------------------------------------------------------------------------------------------------


def test_the_most_consequential_decision_is_the_trial_s_action():
    mute, pardon, answer, tool = (decision(action) for action in ("mute", "pardon", "answer", "tool"))
    assert most_consequential([mute, pardon]) == "pardon"
    assert most_consequential([pardon, answer, mute]) == "answer"
    assert most_consequential([mute, tool, answer]) == "tool"
    assert most_consequential([]) == "mute"


def test_of_equal_decisions_the_one_about_the_speech_that_matters_gives_the_times():
    first, second = decision("mute", span_s=(0.5, 2.0), turn="a"), decision("mute", span_s=(3.0, 5.0), turn="b")
    target = Segment(start=3.5, end=4.8, speaker="A", distance="near", text="x", role="trigger")
    chosen = deciding([first, second], target)
    assert chosen is not None
    assert chosen.turn == "b"
    assert deciding([first, second], None) == first


# The gate ----------------------------------------------------------------------------------------------------------


def gate_table() -> list[Played]:
    """Twelve trials: what was right, what was done."""

    def switch(name: str, condition: str, *rest: Any, **more: Any) -> Played:
        return played(name, "speaker_switch", condition, *rest, target="make_call", **more)

    return [
        switch("a1", "same/near/0", "tool", "tool", tool="make_call", ran="make_call"),
        switch("a2", "same/near/0", "tool", "tool", tool="make_call", ran="send_message"),
        switch("a3", "same/near/0", "tool", "mute", tool="make_call"),
        switch("a4", "same/near/0", "tool", "pardon", tool="make_call"),
        switch("a5", "same/near/0", "tool", None, tool="make_call", status="unparseable"),
        switch("b1", "diff/near/0", "mute", "mute"),
        switch("b2", "diff/near/0", "mute", "tool", ran="make_call"),
        switch("b3", "diff/near/0", "mute", "pardon"),
        switch("b4", "diff/near/0", "mute", None, status="error"),
        switch("t1", "text_only", "tool", "mute", tool="make_call", text="Call my sister."),
        played("s1", "self_talk", "planning", "mute", "tool", ran="book_ride"),
        played("d1", "direct", "masked", "pardon", "mute", target="transfer_money"),
        played("d2", "direct", "masked", "pardon", "pardon", target="transfer_money"),
    ]


def test_the_gate_s_rates_are_those_of_the_hand_count():
    gate = gate_scores(gate_table(), seed=0)
    # Not to be run: b1, b2, b3, s1, d1, d2 (b4 failed, and a failure must not look like restraint).
    assert shares(gate["false_execution"]) == (6, 2)
    # To be run, and spoken: a1 to a5; nothing ran in a3, a4, a5. What was typed is no near command.
    assert shares(gate["false_rejection"]) == (5, 3)
    # To be run, and decided: a1 to a4 and t1; in a2 another tool ran.
    assert shares(gate["wrong_tool"]) == (5, 1)
    # Not to be asked again, and decided: all but a5, b4, d1 and d2; asked in a4 and b3.
    assert shares(gate["unneeded_pardon"]) == (9, 2)
    assert shares(gate["missed_pardon"]) == (2, 1)
    assert gate["false_execution"]["rate"] == pytest.approx(2 / 6, abs=1e-6)
    assert gate["false_execution"]["ci95"] == pytest.approx(wilson(2, 6), abs=1e-6)


def test_each_rate_is_also_given_by_family_condition_and_tool():
    rate = gate_scores(gate_table(), seed=0)["false_execution"]
    assert {name: shares(value) for name, value in rate["by_family"].items()} == {
        "speaker_switch": (3, 1), "self_talk": (1, 1), "direct": (2, 0),
    }  # fmt: skip
    assert {name: shares(value) for name, value in rate["by_condition"]["speaker_switch"].items()} == {
        "diff/near/0": (3, 1)
    }
    assert {name: shares(value) for name, value in rate["by_tool"].items()} == {
        "make_call": (3, 1), "transfer_money": (2, 0), "none": (1, 1),
    }  # fmt: skip


def test_a_tool_that_ran_before_a_time_out_has_run():
    late = played(
        "x", "self_talk", "planning", "mute", None, status="timeout", decisions=[decision("tool", "book_ride")]
    )
    assert shares(gate_scores([late], seed=0)["false_execution"]) == (1, 1)
    assert shares(vgbench_scores([late], 0)["self_talk"]["mute"]) == (1, 0)


def test_a_call_that_the_executor_refused_has_not_run():
    refused = decision("tool", "make_call", outcome="refused")
    one = played("x", "self_talk", "planning", "mute", "tool", decisions=[refused])
    assert shares(gate_scores([one], seed=0)["false_execution"]) == (1, 0)


def test_with_two_tools_every_one_has_to_be_the_right_one():
    right, wrong = decision("tool", "make_call"), decision("tool", "send_message", turn="t0002")
    for made, correct in (([right, right], 1), ([right, wrong], 0), ([wrong, right], 0)):
        one = played("x", "speaker_switch", "same/near/0", "tool", "tool", tool="make_call", decisions=made)
        assert shares(vgbench_scores([one], 0)["speaker_switch"]["same/near/0"]["select"]) == (1, correct)


def test_what_was_not_run_is_null_and_not_zero():
    summary = vgbench_scores([], 0)
    assert summary["side_talk"]["correct"] is None
    assert summary["self_talk"]["mute"] is None
    assert summary["speaker_switch"] == {"text_only": {"select": None}}
    assert summary["proximity_rule"]["accuracy"] is None
    assert set(gate_scores([], 0).values()) == {None}
    assert ear_scores([], 0)["EAR"] is None
    assert set(latency_scores([]).values()) == {None}
    assert throughput([]) is None


# VGBench -----------------------------------------------------------------------------------------------------------


def test_mute_and_selection_are_given_for_each_condition():
    switch = vgbench_scores(gate_table(), 0)["speaker_switch"]
    assert shares(switch["same/near/0"]["mute"]) == (5, 1)
    assert shares(switch["same/near/0"]["select"]) == (5, 1), "an unparseable output is wrong, and it counts"
    assert shares(switch["diff/near/0"]["mute"]) == (4, 1), "a Pardon is no mute, and neither is a failure"
    assert shares(switch["diff/near/0"]["select"]) == (4, 1)
    assert shares(switch["text_only"]["select"]) == (1, 0)
    assert set(switch["text_only"]) == {"select"}


def test_the_proximity_rule_weighs_its_eight_conditions_alike():
    trials = []
    for condition in EIGHT_CONDITIONS:
        licensed = condition.startswith("same/near")
        for number in range(4 if condition == "diff/far/0" else 2):
            right = number == 0
            did = ("tool" if licensed else "mute") if right else "pardon"
            trials.append(
                played(
                    f"{condition.replace('/', '.')}.{number}",
                    "speaker_switch",
                    condition,
                    "tool" if licensed else "mute",
                    did,
                    tool="make_call" if licensed else None,
                    target="make_call",
                    ran="make_call",
                    pair=f"p{number}",
                )
            )
    rate = proximity_rule(trials, seed=0)
    assert rate is not None
    # Seven conditions at one half, one at a quarter: their mean, though 8 of 18 trials are right.
    assert rate["rate"] == pytest.approx((7 * 0.5 + 0.25) / 8)
    assert shares(rate) == (18, 8)
    assert proximity_rule(trials[2:], seed=0) is None, "the mean of seven conditions is another figure"


def test_side_talk_is_right_when_only_the_assistant_directed_words_were_acted_on():
    def side(expected: str, *args: Any, **more: Any) -> Played:
        return played("x", "side_talk", "assistant_first", expected, *args, **more)

    assert side_talk_correct(side("tool", "tool", tool="make_call", ran="make_call")) == 1
    assert side_talk_correct(side("tool", "tool", tool="make_call", ran="book_ride")) == 0
    both = [decision("tool", "make_call"), decision("answer", answer="Nice.", turn="t0002")]
    assert side_talk_correct(side("tool", "tool", tool="make_call", decisions=both)) == 0, "it answered the other too"
    assert side_talk_correct(side("answer", "mute")) == 0
    assert side_talk_correct(side("answer", "answer", said="Paris.")) is None, "free text is a judge's to judge"
    for verdict, credit in (("assistant", 1), ("bystander", 0), ("both", 0), ("neither", 0)):
        judged = side("answer", "answer", said="Paris.", verdicts=[("side_talk", verdict)])
        assert side_talk_correct(judged) == credit


def test_one_free_response_that_is_not_judged_leaves_the_rate_null_and_is_counted():
    judged = played("a", "side_talk", "assistant_first", "answer", "answer", verdicts=[("side_talk", "assistant")])
    waiting = played("b", "side_talk", "assistant_first", "answer", "answer")
    assert shares(measured(SIDE_TALK, [judged], 0)) == (1, 1)
    scores = vgbench_scores([judged, waiting], 0)["side_talk"]
    assert (scores["correct"], scores["not_judged"]) == (None, 1)


# EAR ---------------------------------------------------------------------------------------------------------------


def ear(name: str, condition: str, did: str | None, said: str | None = None, **more: Any) -> Played:
    expected = "pardon" if "degrading" in condition else "answer"
    return played(name, "ear", condition, expected, did, said=said, accepted=("the steak",), **more)


def test_an_exact_match_needs_no_judge_and_other_words_do():
    assert ear_competence(ear("a", "original", "answer", "Steak.")) == 1
    assert ear_competence(ear("a", "original", "answer", "It is steak.")) is None
    assert ear_competence(ear("a", "original", "answer", "It is steak.", verdicts=[("answer", "correct")])) == 1
    assert ear_competence(ear("a", "original", "answer", "Fish.", verdicts=[("answer", "incorrect")])) == 0
    for did in ("pardon", "mute", None):
        status = "ok" if did else "error"
        assert ear_competence(ear("a", "original", did, status=status)) == 0, "asking back is a failure here"
    assert normalised("The  Steak!") == normalised("a steak") == "steak"


def test_repair_has_partial_credit_and_silence_none():
    condition = "semantic_degrading/noise"
    for verdict, credit in (("explicit_repair", 1.0), ("generic_refusal", 0.5), ("other", 0.0)):
        assert ear_repair(ear("a", condition, "pardon", "Pardon?", verdicts=[("repair", verdict)])) == credit
    assert ear_repair(ear("a", condition, "pardon", "Pardon?")) is None
    assert ear_repair(ear("a", condition, "mute")) == 0
    assert ear_repair(ear("a", condition, None, status="unparseable")) == 0


def ear_table() -> list[Played]:
    """Two questions: originals, one mask each way for both, and one expanded window."""
    explicit, generic, other = ([("repair", v)] for v in ("explicit_repair", "generic_refusal", "other"))
    return [
        ear("o1", "original", "answer", "steak", triplet="q1"),
        ear("o2", "original", "answer", "steak", triplet="q2"),
        ear("i1", "semantic_invariant/noise", "answer", "steak", triplet="q1"),
        ear("i2", "semantic_invariant/noise", "pardon", "Pardon?", triplet="q2"),
        ear("d1", "semantic_degrading/noise", "pardon", "Which?", triplet="q1", verdicts=explicit),
        ear("d2", "semantic_degrading/noise", "answer", "I do not know.", triplet="q2", verdicts=generic),
        ear("d3", "semantic_degrading/music", "answer", "Fish.", triplet="q1", verdicts=other),
        ear("d4", "semantic_degrading/noise+wide", "pardon", "Which?", triplet="q1", verdicts=explicit),
    ]  # fmt: skip


def test_ear_is_the_harmonic_mean_of_competence_and_repair():
    scores = ear_scores(ear_table(), seed=0)
    assert shares(scores["C"]) == (4, 3)
    assert shares(scores["R"]) == (3, 1.5), "the expanded window is a setting of its own"
    assert scores["EAR"]["rate"] == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    assert (scores["EAR"]["n"], scores["EAR"]["k"]) == (2, None)
    assert shares(scores["competence"]["original"]) == (2, 2)
    assert shares(scores["competence"]["semantic_invariant"]) == (2, 1)
    assert scores["repair"] == {"explicit_repair": 1, "generic_refusal": 1, "other": 1, "not_judged": 0}


def test_an_ear_score_that_never_varies_is_not_certain():
    scores = ear_scores([ear("o", "original", "mute"), ear("d", "semantic_degrading/noise", "mute")], seed=0)
    assert scores["EAR"]["rate"] == 0
    assert scores["EAR"]["ci95"] == pytest.approx([0.0, wilson(0, 1)[1]], abs=1e-5)


def test_each_mask_is_set_against_the_originals():
    masks = ear_scores(ear_table(), seed=0)["by_mask"]
    assert list(masks) == ["noise", "noise+wide", "music"]
    assert (shares(masks["noise"]["C"]), shares(masks["noise"]["R"])) == ((4, 3), (2, 1.5))
    assert masks["noise"]["EAR"]["rate"] == pytest.approx(0.75)
    assert (shares(masks["noise+wide"]["C"]), shares(masks["noise+wide"]["R"])) == ((4, 3), (1, 1))
    assert (shares(masks["music"]["C"]), shares(masks["music"]["R"])) == ((2, 2), (1, 0))
    assert masks["music"]["EAR"]["rate"] == 0


def test_without_a_judge_what_it_has_to_say_is_null_and_counted():
    trials = [ear("o", "original", "answer", "It is steak."), ear("d", "semantic_degrading/noise", "pardon", "Which?")]
    scores = ear_scores(trials, seed=0)
    assert (scores["C"], scores["R"], scores["EAR"]) == (None, None, None)
    assert scores["not_judged"] == {"answers": 1, "repairs": 1}
    assert scores["repair"]["not_judged"] == 1
    assert measured(EAR_C, trials, 0) is None


# Times -------------------------------------------------------------------------------------------------------------


def test_latency_runs_from_the_labelled_end_of_speech_to_the_decision_about_it():
    right = played("a", "self_talk", "x", "mute", "mute", decisions=[decision("mute", at_s=2.75)])
    assert latency_s(right) == pytest.approx(0.75)
    elsewhere = played("b", "self_talk", "x", "mute", "mute", decisions=[decision("mute", span_s=(4.0, 5.0))])
    assert latency_s(elsewhere) is None, "a decision about other speech has no latency after this"
    unlabelled = played("c", "self_talk", "x", "mute", "mute", segments=())
    assert latency_s(unlabelled) is None
    found = latency_scores([right, elsewhere, unlabelled])
    assert found["right_mute"] == {"n": 1, "p50": 0.75, "p95": 0.75, "max": 0.75, "without": 2}
    assert found["right_execution"] is None


def test_latencies_are_told_apart_by_what_came_of_the_trial():
    found = latency_scores(gate_table())
    counts = {name: None if value is None else value["n"] for name, value in found.items()}
    assert counts == {
        "right_execution": 1, "false_execution": 2, "right_mute": 1, "false_rejection": 2, "pardon": 3, "answer": None,
    }  # fmt: skip


def test_compute_is_counted_once_a_turn_though_a_turn_may_be_split():
    first = decision("mute", turn="t0001.1", compute={"speech": 0.2, "policy": 0.1})
    second = decision("mute", turn="t0001.2", compute={"speech": 0.2, "policy": 0.1})
    third = decision("mute", turn="t0002", compute={"speech": 0.4})
    one = played("a", "self_talk", "x", "mute", "mute", decisions=[first, second, third])
    found = compute_scores([one])
    assert found["speech"] == {"n": 2, "p50": pytest.approx(0.3), "p95": pytest.approx(0.39)}
    assert found["policy"]["n"] == 1


def test_throughput_counts_the_time_in_which_trials_ran_once():
    def ran(name: str, start: float, end: float) -> Played:
        timing = TrialTiming(audio=6.0, began_unix=start, ended_unix=end)
        return played(name, "self_talk", "x", "mute", "mute", timing=timing)

    # Two workers side by side for 3 s, a break of an hour, one trial of 1 s.
    found = throughput([ran("a", 100.0, 102.0), ran("b", 100.5, 103.0), ran("c", 3700.0, 3701.0)])
    assert found is not None
    assert (found["audio_seconds"], found["busy_seconds"]) == (18.0, 4.0)
    assert found["audio_seconds_per_second"] == pytest.approx(4.5)


# From files --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over the small corpus."""
    folder = tmp_path_factory.mktemp("finished")
    run(options(small_corpus(folder), folder / "out"), here)
    return folder / "out"


def test_a_run_is_scored_from_its_folder_alone_and_always_to_the_same_bytes(finished: Path):
    summary = score(finished)
    written = (finished / SUMMARY).read_bytes()
    assert json.loads(written) == json.loads(json.dumps(summary))
    score(finished)
    assert (finished / SUMMARY).read_bytes() == written
    assert shares(summary["vgbench"]["speaker_switch"]["same/near/0"]["select"]) == (1, 1)
    assert shares(summary["vgbench"]["speaker_switch"]["diff/near/0"]["mute"]) == (1, 1)
    assert shares(summary["vgbench"]["speaker_switch"]["text_only"]["select"]) == (1, 1)
    assert shares(summary["gate"]["false_execution"]) == (4, 0)
    assert shares(summary["gate"]["missed_pardon"]) == (1, 0)
    assert summary["status"] == {"ok": 6, "error": 0, "timeout": 0, "unparseable": 0, "no_audio": 0, "not_run": 0}
    assert 0.5 < summary["latency"]["right_execution"]["p50"] < 3.0
    provenance = summary["provenance"]
    assert {"git_commit", "git_dirty", "configuration", "models", "seed", "machine"} <= set(provenance)
    assert provenance["models"] == {"rehearsal": "0" * 64}


def test_corrected_labels_are_scored_without_another_run(finished: Path, tmp_path: Path):
    trials = load_manifest(finished / "manifest.jsonl", check_files=False)
    relabelled = [
        trial.model_copy(update={"expected": trial.expected.model_copy(update={"action": "mute"})})
        if trial.id == "ask"
        else trial
        for trial in trials
    ]
    write_manifest(tmp_path / "m.jsonl", relabelled)
    before, after = score(finished), score(finished, tmp_path / "m.jsonl")
    assert before["provenance"]["scored"] != after["provenance"]["scored"]
    write_manifest(tmp_path / "fewer.jsonl", relabelled[1:])
    with pytest.raises(ScoreError, match="same"):
        score(finished, tmp_path / "fewer.jsonl")


def test_trials_that_have_not_been_run_are_counted(finished: Path):
    config = json.loads((finished / "config.json").read_text())
    assert summarise([], 3, config)["status"]["not_run"] == 3


def test_judgements_come_from_a_file_beside_the_log(tmp_path: Path):
    path = tmp_path / JUDGEMENTS
    assert len(Judgements.load(path)) == 0
    line = {"id": "a", "kind": "repair", "verdict": "explicit_repair", "judge": "rules 1"}
    path.write_text(json.dumps(line) + "\n" + '{"id": "torn')
    found = Judgements.load(path)
    assert (found.verdict("a", "repair"), found.verdict("a", "answer"), found.judges) == (
        "explicit_repair", None, ["rules 1"],
    )  # fmt: skip
    path.write_text(json.dumps({**line, "verdict": "correct"}) + "\n")
    with pytest.raises(JudgementsError, match=r":1: .*no verdict on repair"):
        Judgements.load(path)
    path.write_text(2 * (json.dumps(line) + "\n"))
    with pytest.raises(JudgementsError, match=r":2: .*already"):
        Judgements.load(path)
