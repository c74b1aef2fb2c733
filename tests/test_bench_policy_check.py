"""The policy's figures count what they say: the right tool, a real answer, and silence about what is for others."""

from __future__ import annotations

import pytest

from bench import policy_check
from bench.build.scripts import Expected, Split, load_scripts
from bench.policy_check import Item, Kind, Result, ask, heard, items, judge, report
from gate.actions import ActionKind
from gate.catalogue import ToolCall
from gate.evidence import DistanceVerdict, SpeakerVerdict
from gate.grounding import normal_form
from models.prompt import EXEMPLARS
from tests.fake_models import ScriptedPolicy

CALL = ToolCall("send_message", {"recipient": "Ben", "body": "I am late"})
COMMAND = Item("c", "f", Kind.COMMAND, "Text Ben I am late.", Expected(ActionKind.TOOL, CALL))
QUESTION = Item(
    "q", "g", Kind.QUESTION, "What is the capital of France?", Expected(ActionKind.ANSWER, answers=("Paris",))
)
MONOLOGUE = Item("s", "h", Kind.SELF_TALK, "I should text Ben.", Expected(ActionKind.MUTE))


def written(name: str, **params: object) -> str:
    inner = ", ".join(f'"{key}": "{value}"' for key, value in params.items())
    return f'<|TOOL|>{{"name": "{name}", "params": {{{inner}}}}}</|TOOL|>'


@pytest.mark.parametrize(
    ("item", "text", "action", "right", "exact"),
    [
        (COMMAND, written("send_message", recipient="Ben", body="I am late"), "tool", True, True),
        (COMMAND, written("send_message", recipient="ben", body="I am late."), "tool", True, True),
        (COMMAND, written("send_message", recipient="Ben", body="late"), "tool", True, False),
        (COMMAND, written("send_message", recipient="Ben"), "tool", True, False),
        (COMMAND, written("make_call", contact="Ben"), "tool", False, False),
        (COMMAND, "[Mute]", "mute", False, False),
        (COMMAND, "I have texted Ben.", "answer", False, False),
        (COMMAND, "Pardon? Who should I text?", "pardon", False, False),
        (COMMAND, "<|TOOL|>{", "unparseable", False, False),
        (QUESTION, "It is Paris.", "answer", True, True),
        (QUESTION, "It is Lyon.", "answer", True, False),
        (QUESTION, "[Mute]", "mute", False, False),
        (MONOLOGUE, "[Mute]", "mute", True, True),
        (MONOLOGUE, written("send_message", recipient="Ben", body="late"), "tool", False, False),
        (MONOLOGUE, "Good idea.", "answer", False, False),
        (MONOLOGUE, "", "unparseable", False, False),
    ],
)
def test_only_the_right_action_counts_as_right(item: Item, text: str, action: str, right: bool, exact: bool) -> None:
    result = judge(item, text)
    assert (result.action, result.is_right, result.is_exact) == (action, right, exact)


def test_an_item_is_put_as_heard_right_from_the_owner_near_by_without_any_hint_of_what_is_right() -> None:
    turn = heard(COMMAND)
    assert [word.text for word in turn.segment.words] == ["Text", "Ben", "I", "am", "late."]
    assert (turn.segment.speaker, turn.segment.distance) == (SpeakerVerdict.OWNER, DistanceVerdict.NEAR)
    assert (turn.context, turn.question) == ((), None)
    assert len(turn.tools) == 10


def test_every_part_of_the_scripts_has_each_kind_and_no_utterance_twice() -> None:
    scripts = load_scripts()
    for split in Split:
        found = list(items(scripts, split))
        assert {item.kind for item in found} == set(Kind)
        assert len({item.id for item in found}) == len(found)
    held_out = list(items(scripts, Split.TEST))
    assert len(held_out) >= 300
    assert not {item.family for item in held_out} & {item.family for item in items(scripts, Split.TRAIN)}


def test_what_is_held_out_is_no_example_of_the_policys_prompt() -> None:
    shown = {normal_form(text) for said in EXEMPLARS.values() for text in said}
    assert [item.text for item in items(load_scripts(), Split.TEST) if normal_form(item.text) in shown] == []


def test_the_report_counts_each_kind_by_itself_and_leaves_out_what_was_not_asked() -> None:
    policy = ScriptedPolicy(
        {COMMAND.text: written("send_message", recipient="Ben", body="late"), QUESTION.text: "Lyon."}
    )
    lines = report(ask(policy, [COMMAND, QUESTION, MONOLOGUE]))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[0] for row in cells] == ["commands", "questions", "self-talk"]
    assert [row[3] for row in cells] == ["1 (100%)"] * 3
    assert [row[5] for row in cells] == ["0 (0%)", "0 (0%)", ""]
    assert [row[6:] for row in cells] == [["0", "1", "0", "0"], ["0", "0", "1", "0"], ["1", "0", "0", "0"]]
    assert all("100%" in row[4] and not row[4].startswith("100%") for row in cells), "one of one is not certain"


def test_what_is_outside_the_grammar_is_said_and_is_no_silence() -> None:
    lines = report([Result(MONOLOGUE, "<|TOOL|>{", "unparseable", False, False)])
    assert lines[-1] == "Outside the grammar: 1."
    assert "| 0 (0%) |" in lines[2]


def test_the_command_prints_the_table_and_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(policy_check, "load_policy", lambda name, store, threads: ScriptedPolicy({}))
    assert policy_check.main(["--split", "dev", "--wrong"]) == 0
    out = capsys.readouterr().out
    assert "scripts: dev" in out
    commands = next(line for line in out.splitlines() if line.startswith("| commands"))
    talk = next(line for line in out.splitlines() if line.startswith("| self-talk"))
    assert "0 (0%)" in commands, "a policy that is always silent serves no command"
    assert "(100%)" in talk
    assert "\ncommands, " in out
    assert "\nself-talk, " not in out
