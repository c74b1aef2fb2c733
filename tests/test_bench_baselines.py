"""Baselines and ablations: each takes away what it says, and nothing of the product is left changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agent import turn_work
from agent.assemble import Parts
from agent.clock import Pace
from agent.settings import Settings
from bench import contestants
from bench.baselines import no_verdicts, no_veto, oracle_words, raw_lm
from bench.baselines.always_mute import AlwaysMute
from bench.baselines.always_tool import AlwaysTool
from bench.baselines.asr_keyword import AsrKeyword, react
from bench.contestants import Contestant, Setup, UnknownContestantError, load_contestant, make_setup
from bench.rehearsal import Line, RehearsedEars, RehearsedPolicy, rehearsed_parts
from bench.results import TrialResult
from bench.stream import HeardStream
from bench.trial_runner import RunSpec, TrialRunner, bench_settings
from bench.trials import Segment, Trial
from gate import decision as gate_decision
from gate.actions import AnswerAction, MuteAction, ToolAction
from gate.evidence import DistanceVerdict, Modality, SpeakerVerdict, Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import HeardSegment, Policy, PolicyInput
from models.store import Store
from tests.bench_contestants import CALL, CHAT, FAR_CALL, LINES, OTHER_CALL, PAY, QUESTION, REPLIES
from tests.bench_harness import spoken
from tools.catalogue import ToolCatalogue

SETTINGS = bench_settings(Settings(), threads=1)


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Loads rehearsed ears and policy in place of the product's."""

    def parts(settings: Settings, store: Store, catalogue: ToolCatalogue, policy: Policy | None = None) -> Parts:
        made = rehearsed_parts(RehearsedEars(LINES), RehearsedPolicy(REPLIES))
        return Parts(made.ears, policy or made.policy, "x", made.speaker_thresholds, made.distance_thresholds)

    monkeypatch.setattr(contestants, "load_parts", parts)
    return make_setup(SETTINGS, Store())


def play(contestant: Contestant, folder: Path, *trials: Trial) -> list[TrialResult]:
    spec = RunSpec("test", SETTINGS.model_dump_json(), Pace.FREE, 0, 60.0, folder)
    runner = TrialRunner(spec, contestant)
    try:
        return [runner.run(trial) for trial in trials]
    finally:
        runner.close()


Corpus = Callable[[Path], list[Trial]]


def corpus(folder: Path) -> list[Trial]:
    return [
        spoken(folder, "same", [CHAT, CALL], "tool", tool="make_call"),
        spoken(folder, "other", [CHAT, OTHER_CALL], "mute"),
        spoken(folder, "far", [CHAT, FAR_CALL], "mute"),
        spoken(folder, "chat", [CHAT], "mute"),
        spoken(folder, "pay", [CHAT, PAY], "pardon"),
    ]


def test_the_degenerate_baselines_are_perfect_at_one_thing_each(setup: Setup, tmp_path: Path):
    mute = play(load_contestant("always-mute", setup), tmp_path, *corpus(tmp_path))
    assert [(r.status, r.action) for r in mute] == [("ok", "mute")] * 5
    tool = play(load_contestant("always-tool", setup), tmp_path, *corpus(tmp_path))
    assert [(r.status, r.action) for r in tool] == [("ok", "tool")] * 5
    assert {r.tool for r in tool} == {"send_message"}, "the first tool of the list, whatever is said"


def test_keywords_know_what_is_said_and_nothing_else(setup: Setup, tmp_path: Path):
    results = play(load_contestant("asr-keyword", setup), tmp_path, *corpus(tmp_path))
    assert [r.tool for r in results] == ["make_call", "make_call", "make_call", None, "transfer_money"]
    (asked,) = play(load_contestant("asr-keyword", setup), tmp_path, spoken(tmp_path, "q", [QUESTION], "answer"))
    assert asked.action == "answer"


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("Please call a taxi.", "make_call"),
        ("Text Maria, then call Ben.", "send_message"),
        ("TURN OFF the lights!", "control_device"),
        ("I recall that.", None),
        ("Maybe I should order a pizza.", "place_order"),
        ("Open my garage and then lock it.", "unlock_door"),
    ],
)
def test_the_first_keyword_wins_and_only_whole_words_count(text: str, tool: str | None):
    action = react(text, [facts.name for facts in ToolCatalogue.builtin().all()])
    assert (action.call.name if isinstance(action, ToolAction) else None) == tool


def test_keywords_of_a_tool_of_one_s_own_are_the_words_of_its_name():
    assert react("Start the coffee machine now", ["coffee_machine"]) == ToolAction(
        react("coffee machine", ["coffee_machine"]).call  # type: ignore[union-attr]
    )
    assert isinstance(react("What time is it?", ["make_call"]), AnswerAction)
    assert isinstance(react("", ["make_call"]), MuteAction)


def test_without_the_veto_strangers_are_obeyed_and_all_else_is_still_checked(setup: Setup, tmp_path: Path):
    same, other, far, chat, pay = play(load_contestant("no-veto", setup), tmp_path, *corpus(tmp_path))
    assert [r.action for r in (same, other, far, chat)] == ["tool", "tool", "tool", "mute"]
    assert pay.action == "pardon", "a missing argument is asked for as ever"
    assert other.decisions[-1].evidence.speaker.verdict == "other", "what the ears measured stays in the log"
    assert other.decisions[-1].outcome == "done"


def test_an_ungated_policy_is_taken_at_its_word_whoever_speaks(setup: Setup, tmp_path: Path):
    contestant = load_contestant("ungated", setup)
    assert contestant.as_proposed
    same, other, far, chat, pay = play(contestant, tmp_path, *corpus(tmp_path))
    assert [r.action for r in (same, other, far, chat, pay)] == ["tool", "tool", "tool", "mute", "tool"]


def test_lifting_the_veto_leaves_the_product_as_it_was(setup: Setup, tmp_path: Path):
    play(load_contestant("no-veto", setup), tmp_path, corpus(tmp_path)[1])
    assert vars(turn_work)["decide"] is gate_decision.decide
    with no_veto.veto_lifted():
        assert vars(turn_work)["decide"] is not gate_decision.decide
    assert vars(turn_work)["decide"] is gate_decision.decide
    with_gate = Contestant(setup.parts(), setup.catalogue)
    assert [r.action for r in play(with_gate, tmp_path, *corpus(tmp_path)[:3])] == ["tool", "mute", "mute"]


def test_without_verdicts_everybody_is_the_owner_near_by_for_the_policy_too(setup: Setup, tmp_path: Path):
    same, other, far, chat, pay = play(load_contestant("no-verdicts", setup), tmp_path, *corpus(tmp_path))
    assert [r.action for r in (same, other, far, chat, pay)] == ["tool", "tool", "tool", "mute", "pardon"]
    heard = other.decisions[-1].evidence
    assert (heard.speaker.verdict, heard.distance.verdict) == ("owner", "near")
    assert no_verdicts.NOTE in heard.speaker.note


def test_with_the_oracle_s_words_a_deaf_recogniser_does_no_harm_and_the_veto_still_holds(setup: Setup, tmp_path: Path):
    deaf = Line(2500, "", seconds=1.2)
    trial = spoken(tmp_path, "x", [CHAT, deaf], "tool", tool="make_call")
    said = trial.segments[1].model_copy(update={"text": CALL.text})
    trial = trial.model_copy(update={"segments": (trial.segments[0], said)})
    lines = (*LINES, deaf)

    def parts(settings: object, store: object, catalogue: object, policy: Policy | None = None) -> Parts:
        return rehearsed_parts(RehearsedEars(lines), RehearsedPolicy(REPLIES))

    plain = Contestant(parts(None, None, None), setup.catalogue)
    assert play(plain, tmp_path, trial)[0].action == "mute", "it hears nothing"
    oracle = Contestant(plain.parts, setup.catalogue, parts_for=oracle_words.with_labelled_words)
    result, stranger = play(oracle, tmp_path, trial, spoken(tmp_path, "y", [CHAT, OTHER_CALL], "mute"))
    assert (result.action, result.params) == ("tool", {"contact": "my sister"})
    words = result.decisions[-1].evidence.words
    assert words[0].span_s[0] == pytest.approx(said.start, abs=0.02)
    assert words[-1].span_s[1] == pytest.approx(said.end, abs=0.02)
    assert (stranger.action, stranger.reason) == ("mute", "other_speaker")


def test_behind_the_ears_alone_the_command_is_proposed_for_everybody_and_talk_for_nobody(setup: Setup, tmp_path: Path):
    trials = [
        spoken(tmp_path, name, [CHAT, line], "mute", target_tool="make_call", params={"contact": "my sister"})
        for name, line in (("same", CALL), ("other", OTHER_CALL), ("far", FAR_CALL))
    ]
    same, other, far = play(load_contestant("hearing-alone", setup), tmp_path, *trials)
    assert [r.action for r in (same, other, far)] == ["tool", "mute", "mute"]
    assert [r.decisions[-1].proposed for r in (same, other, far)] == ["tool"] * 3
    assert [r.decisions[0].proposed for r in (same, other, far)] == ["mute"] * 3, "small talk is no command"


def test_the_oracle_does_not_know_what_was_masked():
    words = [{"word": w, "start": float(i), "end": i + 0.8} for i, w in enumerate(["Pay", "sixty", "to", "Ben."])]
    segment = Segment(
        start=0.0, end=4.0, speaker="A", distance="near", text="Pay sixty to Ben.", role="trigger",
        words=words, mask={"kind": "noise", "start": 0.9, "end": 1.9},  # type: ignore[call-arg]
    )  # fmt: skip
    trial = Trial.model_validate(
        {"id": "x", "family": "ear", "condition": "original", "audio": "x.wav", "expected": {"action": "mute"},
         "split": "test"}
    ).model_copy(update={"segments": (segment,)})  # fmt: skip
    assert [word.text for word in oracle_words.labelled_words(trial)] == ["Pay", "to", "Ben."]


def test_labelled_text_without_times_is_laid_evenly_over_its_segment():
    segment = Segment(start=1.0, end=3.0, speaker="A", distance="near", text="abc def", role="trigger")
    trial = Trial.model_validate(
        {"id": "x", "family": "direct", "condition": "c", "audio": "x.wav", "expected": {"action": "mute"},
         "split": "test"}
    ).model_copy(update={"segments": (segment,)})  # fmt: skip
    first, second = oracle_words.labelled_words(trial)
    assert first.span == Span(SAMPLE_RATE_HZ, round((1 + 2 * 3 / 7) * SAMPLE_RATE_HZ))
    assert second.span == Span(round((1 + 2 * 4 / 7) * SAMPLE_RATE_HZ), 3 * SAMPLE_RATE_HZ)


def test_a_turn_is_found_again_by_its_very_samples_also_where_it_reaches_into_the_closing_silence():
    heard = HeardStream()
    audio = np.random.default_rng(0).normal(size=3200).astype(np.float32)
    for start in range(0, 3200, 320):
        heard.push(audio[start : start + 320])
    assert heard.find(audio[700:1500]) == 700
    assert heard.find(np.concatenate([audio[3000:], np.zeros(400, np.float32)])) == 3000
    assert heard.find(np.ones(320, np.float32)) is None
    assert heard.find(np.zeros(0, np.float32)) is None


def test_an_unknown_policy_is_answered_with_what_there_is(setup: Setup):
    with pytest.raises(UnknownContestantError, match="Did you mean 'always-mute'"):
        load_contestant("alway-mute", setup)
    with pytest.raises(UnknownContestantError, match=r"tests\.nowhere"):
        load_contestant("tests.nowhere:load", setup)
    for name in (
        "always-mute", "always-tool", "asr-keyword", "raw-lm", "hearing-alone", "ungated", "no-veto", "no-verdicts",
        "oracle-words",
    ):  # fmt: skip
        assert name in contestants.names()


def test_a_baseline_stands_on_the_policy_that_is_named_after_a_colon(setup: Setup, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    real = contestants.load_parts

    def note(settings: Settings, *rest: object) -> Parts:
        seen.append(settings.models.policy)
        return real(settings, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(contestants, "load_parts", note)
    load_contestant("no-veto:another", setup)
    load_contestant("no-veto", setup)
    assert seen == ["another", "smollm2"]


def test_rules_are_recorded_by_the_hash_of_their_own_source():
    hashes = {policy.model.sha256 for policy in (AlwaysMute(), AlwaysTool(), AsrKeyword())}
    assert len(hashes) == 3
    assert all(len(value) == 64 for value in hashes)


def test_the_raw_model_is_told_the_contract_the_tools_and_the_words_and_no_verdict():
    def segment(text: str) -> HeardSegment:
        words = tuple(Word(part, Span(0, 1), 0.9) for part in text.split())
        return HeardSegment(words, SpeakerVerdict.OTHER, DistanceVerdict.FAR)

    turn = PolicyInput(
        "t", segment("Call [?] my sister."), (segment("Hello there."),), ToolCatalogue.builtin().all(),
        modality=Modality.AUDIO,
    )  # fmt: skip
    system, user = raw_lm.messages(turn)
    assert '<|TOOL|>{"name": name, "params": {...}}</|TOOL|>' in system["content"]
    assert "- make_call(contact): " in system["content"]
    assert user["content"] == "Hello there.\nCall my sister."
    assert not {"other", "far"} & set((system["content"] + user["content"]).lower().replace(".", " ").split())
    (asked,) = raw_lm.messages(PolicyInput("t", segment("I like steak."), (), (), question="What does he like?"))
    assert asked["content"].endswith("Please answer the question based on the audio.\nQuestion: What does he like?")
