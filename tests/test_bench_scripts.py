"""The scripts: fair, balanced, broad, and nothing of test in train, or every figure measured on them is flattery."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from bench.build.breadth import (
    BEGIN,
    END,
    README,
    Line,
    commands,
    distinct_ngrams,
    embedded,
    equal_wordings,
    lines,
    main,
    neighbours,
    refresh,
)
from bench.build.scripts import (
    CATALOGUE,
    SCRIPTS,
    Content,
    Form,
    Frame,
    Order,
    Script,
    ScriptError,
    Scripts,
    Split,
    load_scripts,
)
from bench.build.scripts_grounding import as_words, carriers, masked, plain, refused_by_gate
from bench.build.scripts_similarity import CharNgrams
from gate.actions import ActionKind
from gate.catalogue import ParamKind
from gate.phrasing import is_question_about_state

TOOLS = [tool.name for tool in CATALOGUE.all()]


@pytest.fixture(scope="module")
def scripts() -> Scripts:
    return load_scripts()


@pytest.fixture(scope="module")
def every(scripts: Scripts) -> list[Line]:
    return lines(scripts)


def by_split(items: Iterable[Script]) -> dict[Split, int]:
    return dict(Counter(item.split for item in items))


# Counts and balance -----------------------------------------------------------------------------------------------


def test_there_are_as_many_scripts_as_in_the_paper(scripts: Scripts) -> None:
    counts = {name: len(getattr(scripts, name)) for name in Scripts.FILES}
    assert counts == {"speaker_switch": 400, "side_talk": 395, "self_talk": 223, "direct": 150, "cue_commands": 80}


def test_every_split_has_every_tool_equally_often_so_no_tool_outweighs_another(scripts: Scripts) -> None:
    counted = Counter((item.split, item.tool) for item in scripts.speaker_switch)
    expected = {Split.TRAIN: 24, Split.DEV: 8, Split.TEST: 8}
    assert counted == {(split, tool): count for split, count in expected.items() for tool in TOOLS}
    assert Counter(item.tool for item in scripts.cue_commands) == dict.fromkeys(TOOLS, 8)


def test_about_six_in_ten_train_two_choose_thresholds_and_two_are_for_the_end(scripts: Scripts) -> None:
    for name in ("speaker_switch", "side_talk", "self_talk", "direct"):
        items = getattr(scripts, name)
        counted = by_split(items)
        assert counted[Split.TRAIN] / len(items) == pytest.approx(0.6, abs=0.01), name
        assert counted[Split.DEV] / len(items) == pytest.approx(0.2, abs=0.005), name
        assert counted[Split.TEST] / len(items) == pytest.approx(0.2, abs=0.005), name
    assert by_split(scripts.cue_commands) == {Split.TEST: 80}


def test_side_talk_is_balanced_over_eight_configurations_so_position_and_content_decide_nothing(
    scripts: Scripts,
) -> None:
    counted = Counter(item.configuration for item in scripts.side_talk)
    assert len(counted) == len(Order) * len(Content) ** 2
    assert max(counted.values()) - min(counted.values()) <= 1
    for split in (Split.DEV, Split.TEST):
        held_out = Counter(item.configuration for item in scripts.side_talk if item.split is split)
        assert set(held_out.values()) == {10}, split


def test_in_side_talk_each_tool_is_asked_for_and_must_be_ignored_about_equally_often(scripts: Scripts) -> None:
    for counted in (
        Counter(item.tool for item in scripts.side_talk if item.tool),
        Counter(item.bystander_tool for item in scripts.side_talk if item.bystander_tool),
    ):
        assert set(counted) == set(TOOLS)
        assert set(counted.values()) <= {19, 20}


def test_neither_names_nor_question_marks_tell_who_is_spoken_to(scripts: Scripts) -> None:
    questions = [item for item in scripts.side_talk if item.bystander.endswith("?")]
    assert len(questions) >= 40
    assert sum(item.bystander_answers is not None for item in scripts.side_talk) >= 20
    contacts = ("recipient", "contact")
    named = [item for item in scripts.side_talk if item.params and any(key in item.params for key in contacts)]
    assert len(named) >= 60


def test_all_frames_of_self_talk_are_in_every_split(scripts: Scripts) -> None:
    counted = Counter((item.split, item.frame) for item in scripts.self_talk)
    assert {counted[Split.DEV, frame] for frame in Frame} == {3}
    assert {counted[Split.TEST, frame] for frame in Frame} == {3}
    assert {counted[Split.TRAIN, frame] for frame in Frame} == {8, 9}


def test_monologues_name_every_tool_so_that_tool_words_alone_execute_nothing(scripts: Scripts) -> None:
    counted = Counter(str(item.target_tool) for item in scripts.self_talk)
    assert all(counted[tool] >= 12 for tool in TOOLS)
    assert sum(counted[tool] for tool in TOOLS) >= 200


def test_every_monologues_family_has_a_command_that_must_be_served(scripts: Scripts) -> None:
    twins = {item.family: item.twin for item in scripts.direct if item.twin}
    assert twins.keys() == {item.family for item in scripts.self_talk}
    assert len(twins) == len(set(twins.values())) == 75
    assert sum(item.answers is not None for item in scripts.direct) == 75


def test_all_forms_of_commands_are_in_every_split(scripts: Scripts) -> None:
    counted = Counter((item.split, item.form) for item in scripts.speaker_switch)
    for split in Split:
        assert all(counted[split, form] >= 3 for form in Form), split
    imperatives = sum(counted[split, Form.IMPERATIVE] for split in Split)
    assert imperatives <= len(scripts.speaker_switch) / 2


# Families ---------------------------------------------------------------------------------------------------------


def test_no_family_is_in_two_splits_so_test_shows_what_was_not_seen(scripts: Scripts) -> None:
    splits: dict[str, set[Split]] = defaultdict(set)
    for item in scripts.all():
        splits[item.family].add(item.split)
    assert all(len(found) == 1 for found in splits.values())
    assert splits.keys() == scripts.families.keys()


def test_the_cue_commands_share_no_family_with_anything(scripts: Scripts) -> None:
    cues = {item.family for item in scripts.cue_commands}
    assert cues.isdisjoint({item.family for name in Scripts.FILES[:-1] for item in getattr(scripts, name)})
    assert len(cues) == 8


def test_ids_are_unique_since_results_are_matched_by_them(scripts: Scripts) -> None:
    counted = Counter(item.id for item in scripts.all())
    assert [name for name, count in counted.items() if count > 1] == []


def test_names_of_people_in_test_are_not_in_train(scripts: Scripts) -> None:
    found: dict[Split, set[str]] = defaultdict(set)
    for command in commands(scripts):
        for param in ("recipient", "contact"):
            if param in command.params:
                found[command.split].add(str(command.params[param]).casefold())
    assert found[Split.TEST].isdisjoint(found[Split.TRAIN])
    assert found[Split.DEV].isdisjoint(found[Split.TRAIN] | found[Split.TEST])


# Fairness ---------------------------------------------------------------------------------------------------------


def test_every_argument_is_said_so_none_must_be_guessed(scripts: Scripts) -> None:
    unsaid = [
        f"{command.script}: {param}={value!r}"
        for command in commands(scripts)
        for param, value in command.params.items()
        if carriers(command.text, command.tool, param, value) is None
    ]
    assert unsaid == []


def test_a_currency_is_given_only_where_it_was_said(scripts: Scripts) -> None:
    for command in commands(scripts):
        currency = command.params.get("currency")
        assert currency is None or currency in plain(command.text), command


def test_a_currency_that_was_said_is_given(scripts: Scripts) -> None:
    tool = CATALOGUE.find("transfer_money")
    param = tool.param("currency") if tool else None
    assert param is not None
    for command in commands(scripts):
        if command.tool == "transfer_money":
            said = set(plain(command.text)) & set(param.choices)
            assert said == {command.params["currency"]} if "currency" in command.params else not said, command


def test_the_words_of_a_message_are_all_that_follows_so_none_is_lost(scripts: Scripts) -> None:
    for command in commands(scripts):
        if command.tool == "send_message":
            assert plain(command.text)[-2:] == plain(str(command.params["body"]))[-2:], command


def test_nearly_every_argument_stands_up_to_the_gate_when_all_words_are_heard(scripts: Scripts) -> None:
    found = list(commands(scripts))[::4]
    refused = [(item.script, param) for item in found for param in refused_by_gate(item.text, item.tool, item.params)]
    assert len(refused) <= 0.02 * sum(len(item.params) for item in found), refused


def test_nearly_no_command_reads_like_a_question_about_the_state_of_things(scripts: Scripts) -> None:
    found = list(commands(scripts))
    questions = [item.script for item in found if is_question_about_state(as_words(item.text))]
    assert len(questions) <= 0.02 * len(found), questions


def test_each_call_is_one_that_the_tools_take(scripts: Scripts) -> None:
    for item in scripts.all():
        expected = item.expected
        if expected.call is not None:
            assert expected.action is ActionKind.TOOL
            assert CATALOGUE.check(expected.call) == ()
        else:
            assert (expected.action is ActionKind.ANSWER) is bool(expected.answers), item.id
    assert {item.expected.action for item in scripts.self_talk} == {ActionKind.MUTE}


def test_no_argument_of_text_is_longer_than_what_was_said(scripts: Scripts) -> None:
    for command in commands(scripts):
        tool = CATALOGUE.find(command.tool)
        assert tool is not None
        for facts in tool.params:
            if facts.kind is ParamKind.TEXT and facts.name in command.params:
                assert len(str(command.params[facts.name])) < len(command.text), command


def test_contexts_ask_the_assistant_nothing_so_muting_them_is_right(scripts: Scripts) -> None:
    for item in (*scripts.speaker_switch, *scripts.cue_commands):
        assert "?" not in item.context, item.id
        assert "assistant" not in plain(item.context), item.id


def test_no_two_questions_are_the_same_and_none_asks_in_test_what_train_answers(scripts: Scripts) -> None:
    asked: dict[tuple[str, ...], list[Split]] = defaultdict(list)
    questions = [(item.assistant, item.split) for item in scripts.side_talk if item.answers is not None]
    questions += [(item.text, item.split) for item in scripts.direct if item.answers is not None]
    for text, split in questions:
        asked[tuple(sorted(set(plain(text)) - _ASKING))].append(split)
    assert [words for words, splits in asked.items() if len(splits) > 1] == []


_ASKING = {
    "a", "an", "the", "what", "what's", "which", "who", "how", "many", "much", "is", "are", "do", "does", "of", "in",
    "tell", "me", "you", "we", "i", "and", "that", "it", "to", "for", "one",
}  # fmt: skip


# Breadth ----------------------------------------------------------------------------------------------------------


def test_no_two_commands_differ_only_in_their_arguments(scripts: Scripts) -> None:
    assert equal_wordings(scripts) == []


def test_no_two_texts_are_the_same(every: list[Line]) -> None:
    counted = Counter(plain(line.text) for line in every)
    assert [words for words, count in counted.items() if count > 1] == []


def test_commands_do_not_all_begin_alike(scripts: Scripts) -> None:
    openings = Counter(plain(item.command)[:2] for item in scripts.speaker_switch)
    assert len(openings) >= 0.8 * len(scripts.speaker_switch)
    assert openings.most_common(1)[0][1] <= 0.025 * len(scripts.speaker_switch)


def test_test_is_no_nearer_to_train_than_trains_families_are_to_each_other(every: list[Line]) -> None:
    vectors = embedded(CharNgrams(), (line.text for line in every))
    train = [line for line in every if line.split is Split.TRAIN]
    within = [found.similarity for found in neighbours(train, train, vectors)]
    for split in (Split.DEV, Split.TEST):
        held_out = [line for line in every if line.split is split]
        across = [found.similarity for found in neighbours(held_out, train, vectors)]
        assert np.median(across) <= np.median(within) + 0.02, split
        assert max(across) < 0.6, split


def test_the_readme_shows_the_figures_of_these_scripts(every: list[Line]) -> None:
    shown = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    distinct, total = distinct_ngrams((line.text for line in every), 2)
    assert f"{distinct} ({distinct / total:.3f})" in shown
    assert shown.count("| meaning |") >= 7


# The measures themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Tell Ben hello.", "Tell, um, our Joan hello.", True),
        ("Please tell Ben hello.", "Tell Ben hello.", True),
        ("Tell Ben hello.", "Text Ben hello.", False),
        ("Tell Ben hello.", "Tell Ben now, hello.", False),
        ("Tell Ben hello.", "Hello, tell that to Ben.", False),
    ],
)
def test_masking_sees_through_names_and_politeness_and_not_through_verbs(first: str, second: str, same: bool) -> None:
    wordings = [
        masked(text, "send_message", {"recipient": "Joan" if "Joan" in text else "Ben", "body": "hello"})
        for text in (first, second)
    ]
    assert (wordings[0] == wordings[1]) is same


@pytest.mark.parametrize(
    ("text", "tool", "param", "value", "said"),
    [
        ("Send Priya sixty dollars.", "transfer_money", "amount", 60, (2,)),
        ("Send Priya sixty dollars.", "transfer_money", "amount", 6, None),
        ("Send Priya sixty dollars.", "transfer_money", "recipient", "Priya", (1,)),
        ("Send Priya sixty dollars.", "transfer_money", "recipient", "Rhea", None),
        ("Send Priya sixty dollars.", "transfer_money", "currency", "euros", None),
        ("Send twenty, no, thirty euros to Ben.", "transfer_money", "amount", 30, (3,)),
        ("Book a cab to the, uh, the old pier.", "book_ride", "destination", "the old pier", (7, 8)),
        ("Book a cab to the old pier.", "book_ride", "destination", "old stone pier", None),
        ("Dim the lamp.", "control_device", "action", "decrease", ()),
        ("Turn the lamp off.", "control_device", "action", "turn_off", (0, 3)),
        ("Turn the lamp off.", "control_device", "action", "turn_on", None),
    ],
)
def test_an_argument_is_said_when_its_words_are_there_in_order(
    text: str, tool: str, param: str, value: str | int, said: tuple[int, ...] | None
) -> None:
    assert carriers(text, tool, param, value) == said


def test_an_unknown_parameter_is_an_error_and_not_an_unsaid_argument() -> None:
    with pytest.raises(KeyError, match=r"send_message\.subject"):
        carriers("Text Ben hello.", "send_message", "subject", "hello")


def test_what_the_gate_would_ask_for_again_is_told_from_what_was_never_said() -> None:
    params = {"recipient": "Anna", "body": "hello"}
    assert refused_by_gate("Text Anna hello.", "send_message", params) == ()
    assert refused_by_gate("Do not text Maria, not Anna hello.", "send_message", params) == ("recipient",)
    assert refused_by_gate("Text Maria hello.", "send_message", params) == ()


def test_distinct_ngrams_are_counted_within_texts_only() -> None:
    assert distinct_ngrams(["One two one two.", "Two three."], 2) == (3, 4)
    assert distinct_ngrams(["One two."], 3) == (0, 0)


def test_the_nearest_neighbour_is_never_of_the_same_family() -> None:
    def line(name: str, family: str, text: str) -> Line:
        return Line(name, family, Split.TRAIN, "commands", text, text)

    held_out = line("a", "one", "unlock the old barn")
    known = [line("b", "one", "unlock the old barn"), line("c", "two", "unlock the barn"), line("d", "three", "sing")]
    vectors = embedded(CharNgrams(), [item.text for item in (held_out, *known)])
    found = neighbours([held_out], known, vectors)[0]
    assert found.nearest.script == "c"
    assert 0.3 < found.similarity < 1.0


def test_spelling_vectors_have_length_one_or_less_and_find_equals() -> None:
    vectors = CharNgrams().vectors(["call the old harbour master", "call the old harbour master", "sing me a song"])
    assert np.linalg.norm(vectors, axis=1).max() <= 1.0 + 1e-6
    assert vectors[0] @ vectors[1] > 0.95
    assert vectors[0] @ vectors[2] < 0.2


# The loader -------------------------------------------------------------------------------------------------------


Edit = Callable[[list[dict[str, object]]], None]


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str, Edit], Path]:
    """A copy of the scripts in which one file was changed."""
    for path in SCRIPTS.glob("*.jsonl"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")

    def change(name: str, edit: Edit) -> Path:
        path = tmp_path / f"{name}.jsonl"
        rows = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]
        edit(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return tmp_path

    return change


def put(index: int, **values: object) -> Edit:
    def edit(rows: list[dict[str, object]]) -> None:
        rows[index].update(values)

    return edit


def drop(index: int, *keys: str) -> Edit:
    def edit(rows: list[dict[str, object]]) -> None:
        for key in keys:
            del rows[index][key]

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "says"),
    [
        ("speaker_switch", put(2, split="test"), r"switch\.harbour.*is in test.*in train"),
        ("speaker_switch", put(2, family="switch.moon"), r"families\.jsonl; add it there"),
        ("speaker_switch", put(2, id="switch.harbour.send_message"), r"speaker_switch\.jsonl:3: .*already on line 1"),
        ("speaker_switch", put(2, tool="send_mail"), r"speaker_switch\.jsonl:3: tool"),
        ("speaker_switch", put(2, params={"title": "lunch"}), r"speaker_switch\.jsonl:3: .*schedule_event\.when"),
        ("speaker_switch", put(4, params={"recipient": "Ben", "amount": "45"}), r"transfer_money\.amount"),
        ("speaker_switch", put(2, command="Call me at 7."), r"speaker_switch\.jsonl:3: command: .*numbers as words"),
        ("speaker_switch", put(2, command="Call."), r"has 1 words"),
        ("speaker_switch", put(2, note="checked"), r"speaker_switch\.jsonl:3: note"),
        ("side_talk", put(0, bystander_tool="send_message"), r"side_talk\.jsonl:1: .*the same tool"),
        ("side_talk", put(0, answers=["yes"]), r"side_talk\.jsonl:1: .*no answers"),
        ("side_talk", drop(2, "answers"), r"side_talk\.jsonl:3: .*or else answers"),
        ("side_talk", put(2, answers=["Paris", "paris"]), r"side_talk\.jsonl:3: answers: .*none twice"),
        ("self_talk", put(0, frame="muttering"), r"self_talk\.jsonl:1: frame"),
        ("direct", put(0, twin="self.regret.spending.1"), r"direct\.planning\.seedlings: its twin"),
        ("direct", drop(0, "twin"), r"direct\.jsonl:1: .*has a twin"),
        ("families", put(0, split="training"), r"families\.jsonl:1: split"),
        ("families", lambda rows: rows.append({**rows[0], "id": "switch.moon"}), r"no script belongs to switch\.moon"),
        ("cue_commands", put(0, id="switch.harbour.send_message"), r"used in two files"),
    ],
)
def test_a_damaged_script_is_an_error_that_names_it_and_never_a_trial(
    copied: Callable[[str, Edit], Path], name: str, edit: Edit, says: str
) -> None:
    folder = copied(name, edit)
    with pytest.raises(ScriptError, match=says):
        load_scripts(folder)


def test_an_unfinished_line_is_an_error_that_names_it(copied: Callable[[str, Edit], Path]) -> None:
    folder = copied("self_talk", lambda rows: None)
    with (folder / "self_talk.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "self.cut')
    with pytest.raises(ScriptError, match=r"self_talk\.jsonl:224: line"):
        load_scripts(folder)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"families\.jsonl.*restore"):
        load_scripts(tmp_path)


def test_utterances_of_side_talk_come_in_their_order(scripts: Scripts) -> None:
    for item in scripts.side_talk:
        roles = [role for role, _ in item.utterances]
        assert roles[0] == ("assistant" if item.order is Order.ASSISTANT_FIRST else "bystander")
        assert dict(item.utterances) == {"assistant": item.assistant, "bystander": item.bystander}


# The report -------------------------------------------------------------------------------------------------------


def test_refreshing_the_readme_replaces_the_table_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    refresh(path, "new")
    refresh(path, "newer")
    assert path.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\nnewer\n{END}\nafter\n"
    path.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="put the two lines back"):
        refresh(path, "new")
    assert path.read_text(encoding="utf-8") == "no marks"


@pytest.mark.slow
def test_the_report_runs_without_the_embedding_model_and_then_leaves_the_readme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = README.read_bytes()
    assert main(["--no-model", "--pairs", "1"]) == 0
    out = capsys.readouterr().out
    assert "distinct wordings" in out
    assert "| spelling |" in out
    assert "| meaning |" not in out
    assert README.read_bytes() == before


def test_a_missing_embedding_model_names_the_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(tmp_path)]) == 1
    assert "pip install" in capsys.readouterr().err
