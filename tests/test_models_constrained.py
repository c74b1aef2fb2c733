"""Decoding under the action grammar: whatever the weights, an action comes out, and no argument is invented."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import grammar
from gate.actions import ActionKind, AnswerAction, MuteAction, PardonAction, ToolAction, Unparseable, kind_of
from gate.catalogue import ParamFacts, ParamKind, Risk, ToolFacts
from gate.evidence import Word
from gate.grounding import ground_text, spoken_number
from gate.span import Span
from models.constrained import JSON_FORM, LISTED_FORM, ActionWriter, CallForm, Limits, stripped
from models.llama_runtime import Context, LlamaRuntime
from models.protocols import MASK_MARK
from tests.tiny_llama import export_tiny

SEEDS = (0, 1, 2)
FORMS = pytest.mark.parametrize("form", [JSON_FORM, LISTED_FORM], ids=["json", "listed"])


@cache
def writer(seed: int) -> ActionWriter:
    directory = Path(mkdtemp(prefix=f"tiny_{seed}_"))
    export_tiny(directory, seed)
    return ActionWriter(LlamaRuntime(directory, threads=1), Limits(answer_tokens=12))


def heard(seed: int, words: list[str]) -> Context:
    context = writer(seed).runtime.context(1200)
    context.read(writer(seed).runtime.encode(f'The owner says: "{" ".join(words)}"\n'))
    return context


def text(name: str, required: bool = True, ask: str = "Who should I text?") -> ParamFacts:
    return ParamFacts(name, ParamKind.TEXT, required, ask, description=f"the {name}")


def number(name: str, kind: ParamKind = ParamKind.NUMBER, required: bool = True) -> ParamFacts:
    return ParamFacts(name, kind, required, f"What {name}?", description=f"the {name}")


def tool(*params: ParamFacts, name: str = "send_message") -> ToolFacts:
    return ToolFacts(name, "Send a text message.", Risk.MEDIUM, params)


def said(words: list[str]) -> tuple[Word, ...]:
    return tuple(Word(word, Span(index, index + 1), 1.0) for index, word in enumerate(words))


VOCABULARY = (
    *[
        "text",
        "Ben",
        "that",
        "I'm",
        "on",
        "my",
        "way,",
        "please.",
        "call",
        "the",
        "dentist's",
        "office!",
        "“so-called”",
        "Café",
        "naïve",
        "3",
        "$60",
        "sixty",
        "two",
        "hundred",
        "and",
        "five",
        "7:30",
        "p.m.",
        "...",
        "?",
        "—",
        '"quoted"',
        "back\\slash",
        "[Mute]",
        "<|TOOL|>",
        "</|TOOL|>",
        "Pardon?",
        "{}",
        ",",
        "a",
        "an",
    ],
    MASK_MARK,
    MASK_MARK,
)
words_heard = st.lists(st.sampled_from([word for word in VOCABULARY if word]), min_size=1, max_size=9)
names = st.from_regex(r"[a-z][a-z_]{0,9}", fullmatch=True)


@st.composite
def params(draw: st.DrawFn) -> ParamFacts:
    kind = draw(st.sampled_from(list(ParamKind)))
    choices = tuple(draw(st.lists(names, min_size=1, max_size=3, unique=True))) if kind is ParamKind.CHOICE else ()
    ask = draw(st.sampled_from(["Who?", "Which one should it be?", "How much is it?"]))
    return ParamFacts(draw(names), kind, draw(st.booleans()), ask, choices, draw(st.sampled_from(["", "the thing"])))


@st.composite
def tool_sets(draw: st.DrawFn) -> list[ToolFacts]:
    out = []
    for name in draw(st.lists(names, max_size=3, unique=True)):
        chosen = draw(st.lists(params(), max_size=3, unique_by=lambda param: param.name))
        out.append(ToolFacts(name, "Do it.", Risk.LOW, tuple(chosen)))
    return out


def check_call(action: ToolAction, facts: ToolFacts, words: list[str]) -> None:
    """Every argument was said, is of its kind and was heard; nothing needed is missing."""
    values = action.call.params
    assert set(values) <= {param.name for param in facts.params}
    assert {param.name for param in facts.params if param.required} <= set(values)
    taken: list[str] = []
    for param in facts.params:
        if param.name not in values:
            continue
        value = values[param.name]
        if param.kind is ParamKind.TEXT:
            assert isinstance(value, str)
            assert value.strip()
            assert MASK_MARK not in value
            assert is_run(value, words), (value, words)
            taken += value.split()
        elif param.kind is ParamKind.CHOICE:
            assert value in param.choices
        elif param.kind is ParamKind.BOOLEAN:
            assert isinstance(value, bool)
        else:
            assert isinstance(value, int | float)
            assert not isinstance(value, bool)
            assert param.kind is ParamKind.NUMBER or isinstance(value, int)
            runs = (words[i:j] for i in range(len(words)) for j in range(i + 1, len(words) + 1))
            assert any(spoken_number(" ".join(run)) == value for run in runs), (value, words)
    assert len(taken) <= len(words)


def is_run(value: str, words: list[str]) -> bool:
    """Whether the value is some contiguous words without the punctuation at its two ends."""
    parts = value.split(" ")
    for start in range(len(words) - len(parts) + 1):
        run = words[start : start + len(parts)]
        if len(run) == 1 and parts[0] == stripped(run[0]):
            return True
        if run[0].endswith(parts[0]) and run[1:-1] == parts[1:-1] and parts[-1] == stripped(run[-1]):
            return True
    return False


class TestAnyWeights:
    @given(st.sampled_from(SEEDS), words_heard, tool_sets())
    @settings(max_examples=40, deadline=None)
    def test_what_is_written_always_parses(self, seed: int, words: list[str], tools: list[ToolFacts]) -> None:
        written = writer(seed).write(heard(seed, words), words, tools)
        parsed = grammar.parse(written.text)
        assert parsed == written.action
        if isinstance(parsed, ToolAction):
            check_call(parsed, next(item for item in tools if item.name == parsed.call.name), words)

    @FORMS
    @given(
        seed=st.sampled_from(SEEDS),
        words=words_heard,
        chosen=st.lists(params(), max_size=4, unique_by=lambda p: p.name),
    )
    @settings(max_examples=30, deadline=None)
    def test_arguments_are_runs_of_the_words_so_none_is_invented(
        self, form: CallForm, seed: int, words: list[str], chosen: list[ParamFacts]
    ) -> None:
        facts = tool(*chosen)
        draft = writer(seed).call(heard(seed, words), facts, words, form=form)
        action = draft.action()
        assert grammar.parse(grammar.render(action)) == action
        if isinstance(action, ToolAction):
            check_call(action, facts, words)
            heard_words = said(words)
            for param in chosen:
                value = action.call.params.get(param.name)
                if param.kind is ParamKind.TEXT and isinstance(value, str) and any(map(str.isalnum, value)):
                    assert ground_text(value, heard_words) is not None, "the gate would refuse it as invented"
        else:
            assert draft.missing in chosen
            assert action.question == draft.missing.ask
        assert draft.complete_logprob <= 0.0

    @given(st.sampled_from(SEEDS), words_heard)
    @settings(max_examples=15, deadline=None)
    def test_an_answer_is_never_another_action(self, seed: int, words: list[str]) -> None:
        written = writer(seed).answer(heard(seed, words))
        assert grammar.parse(written.text) == written.action
        assert isinstance(written.action, AnswerAction | PardonAction)
        assert written.steps <= 12

    def test_the_same_words_always_give_the_same_text(self) -> None:
        words = ["text", "Ben", "that", "the", "dentist", "called"]
        facts = [tool(text("recipient"), text("body"))]
        first, second = (writer(1).write(heard(1, words), words, facts) for _ in range(2))
        assert first == second


class TestUnheard:
    @FORMS
    @pytest.mark.parametrize("seed", SEEDS)
    def test_masked_required_text_becomes_a_pardon_that_names_it(self, seed: int, form: CallForm) -> None:
        words = [MASK_MARK]
        draft = writer(seed).call(heard(seed, words), tool(text("recipient")), words, form=form)
        assert draft.action() == PardonAction("Who should I text?")
        assert grammar.render(draft.action()) == "Pardon? Who should I text?"

    @FORMS
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("kind", [ParamKind.NUMBER, ParamKind.INTEGER])
    def test_amount_that_was_not_heard_is_asked_for_and_never_guessed(
        self, seed: int, form: CallForm, kind: ParamKind
    ) -> None:
        words = f"transfer {MASK_MARK} dollars to Alex".split()
        draft = writer(seed).call(heard(seed, words), tool(number("amount", kind)), words, form=form)
        assert draft.action() == PardonAction("What amount?")
        assert "amount" not in draft.params

    @pytest.mark.parametrize("seed", SEEDS)
    def test_amount_that_was_not_said_is_asked_for(self, seed: int) -> None:
        words = ["transfer", "money", "to", "Alex"]
        draft = writer(seed).call(heard(seed, words), tool(number("amount")), words)
        assert draft.action() == PardonAction("What amount?")

    def test_needed_argument_is_asked_for_before_an_optional_one(self) -> None:
        words = [MASK_MARK]
        facts = tool(text("item", ask="What should I order?"), number("quantity", ParamKind.INTEGER, required=False))
        for seed in SEEDS:
            draft = writer(seed).call(heard(seed, words), facts, words, form=LISTED_FORM)
            assert draft.action() == PardonAction("What should I order?")

    def test_optional_argument_that_was_not_said_is_left_out(self) -> None:
        words = ["order", "milk"]
        facts = tool(number("quantity", ParamKind.INTEGER, required=False))
        assert writer(0).call(heard(0, words), facts, words).action() == ToolAction(
            grammar.parse(f'{grammar.TOOL_OPEN}{{"name": "send_message", "params": {{}}}}{grammar.TOOL_CLOSE}').call  # type: ignore[union-attr]
        )

    def test_optional_choice_that_was_not_said_is_left_out(self) -> None:
        currency = ParamFacts("currency", ParamKind.CHOICE, False, "Which?", ("dollars", "euros"), "the currency")
        words = ["pay", "Ben", "sixty"]
        assert writer(0).call(heard(0, words), tool(currency), words).params == {}

    @pytest.mark.parametrize(
        ("start", "expected"),
        [("The capital of X", "The capital of what?"), ("X", "What?"), ("the [?]", "The what?")],
    )
    def test_answer_that_hangs_on_unheard_words_becomes_an_echo_question(
        self, start: str, expected: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ActionWriter, "_free_text", lambda *_: (start, 3))
        written = writer(0).answer(heard(0, ["why"]), masked=True)
        assert written.action == PardonAction(expected)
        assert grammar.parse(written.text) == written.action

    def test_stand_in_for_unheard_words_is_a_plain_letter_where_all_was_heard(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ActionWriter, "_free_text", lambda *_: ("The X axis.", 3))
        assert writer(0).answer(heard(0, ["why"])).action == AnswerAction("The X axis.")


class TestCandidates:
    @pytest.mark.parametrize(
        ("word", "bare"),
        [
            ("late.", "late"), ("“so-called”", "so-called"), ("p.m.", "p.m."), ("p.m.,", "p.m."), ("...", ""),
            ("(maybe)", "maybe"), ("$60,", "$60"), ("O'Brien's", "O'Brien's"), ("Dr.", "Dr"), ("50%.", "50%"),
        ],
    )  # fmt: skip
    def test_punctuation_around_words_is_not_part_of_an_argument(self, word: str, bare: str) -> None:
        assert stripped(word) == bare

    @pytest.mark.parametrize(
        ("words", "value"),
        [("pay $60 now", 60), ("pay two hundred and five now", 205), ("pay 12.50 now", 12.5), ("pay sixty, now", 60)],
    )
    def test_numbers_are_those_that_were_said(self, words: str, value: float) -> None:
        for seed in SEEDS:
            draft = writer(seed).call(heard(seed, words.split()), tool(number("amount")), words.split())
            assert draft.params == {"amount": value}
            assert type(draft.params["amount"]) is type(value)

    def test_broken_number_is_no_whole_number(self) -> None:
        words = ["order", "2.5", "boxes"]
        draft = writer(0).call(heard(0, words), tool(number("quantity", ParamKind.INTEGER)), words)
        assert draft.missing is not None

    def test_number_too_large_to_be_exact_is_not_taken(self) -> None:
        words = ["pay", "9" * 400, "and", "9" * 20, "dollars"]
        draft = writer(0).call(heard(0, words), tool(number("amount")), words)
        assert draft.action() == PardonAction("What amount?")

    def test_no_word_serves_two_arguments(self) -> None:
        words = ["Ben"]
        for seed in SEEDS:
            draft = writer(seed).call(heard(seed, words), tool(text("recipient"), text("body", ask="What?")), words)
            assert len(draft.params) < 2

    def test_quotation_marks_and_backslashes_survive_in_arguments(self) -> None:
        words = ['say"hi', "back\\slash"]
        draft = writer(0).call(heard(0, words), tool(text("body")), words)
        if draft.missing is None:
            value = draft.params["body"]
            assert json.loads(json.dumps(value)) == value
            assert isinstance(grammar.parse(grammar.render(draft.action())), ToolAction)


class TestCost:
    def test_a_call_reads_forced_text_without_decoding_it(self) -> None:
        """Two passes an argument (read what is forced, score the candidates), however long the syntax is."""
        words = ["text", "Ben", "that", "dinner", "is", "ready"]
        for form in (JSON_FORM, LISTED_FORM):
            draft = writer(0).call(heard(0, words), tool(text("recipient"), text("body")), words, form=form)
            assert draft.steps <= 4

    def test_muting_takes_one_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        favourite = {kind: -9.0 for kind in ActionKind} | {ActionKind.MUTE: -0.1}
        monkeypatch.setattr(ActionWriter, "kinds", lambda *_: dict(favourite))
        written = writer(0).write(heard(0, ["hm"]), ["hm"], [])
        assert (written.action, written.steps) == (MuteAction(), 1)

    @pytest.mark.parametrize("kind", list(ActionKind))
    def test_every_kind_of_action_can_be_written(self, kind: ActionKind, monkeypatch: pytest.MonkeyPatch) -> None:
        favourite = {other: -9.0 for other in ActionKind} | {kind: -0.1}
        monkeypatch.setattr(ActionWriter, "kinds", lambda *_: dict(favourite))
        words = ["Ben"]
        written = writer(2).write(heard(2, words), words, [tool(text("recipient", required=False))])
        assert not isinstance(grammar.parse(written.text), Unparseable)
        assert kind_of(written.action) in (kind, ActionKind.PARDON)


class TestScores:
    def test_kinds_share_all_probability(self) -> None:
        scores = writer(0).kinds(heard(0, ["hello"]))
        assert set(scores) == set(ActionKind)
        assert sum(np.exp(list(scores.values()))) == pytest.approx(1.0, abs=1e-3)

    def test_the_likeliest_name_is_the_one_the_model_would_spell(self) -> None:
        rng = random.Random(4)
        tools = [tool(name="".join(rng.choices("abcdefg_", k=6)).strip("_") + str(index)) for index in range(5)]
        context = heard(0, ["hello"])
        chosen = writer(0).tool(context, tools)
        runtime = writer(0).runtime
        opening = runtime.encode(f'{grammar.TOOL_OPEN}{{"name": "')

        def spelt(item: ToolFacts) -> float:
            start, total = context.mark(), 0.0
            context.read(opening)
            for token in runtime.encode(f'{item.name}"'):
                total += float(context.next_logprobs[token])
                context.read([token])
            context.rewind(start)
            return total

        assert chosen == max(tools, key=spelt)

    def test_no_tools_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no tools"):
            writer(0).tool(heard(0, ["hello"]), [])
