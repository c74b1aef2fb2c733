"""The embedded policy: always in the grammar, never inventing, without torch; and what the real model gets right."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import grammar
from gate.actions import ActionKind, AnswerAction, MuteAction, PardonAction, ToolAction, Unparseable, kind_of
from gate.catalogue import ParamFacts, ParamKind, Risk, ToolFacts
from gate.evidence import DistanceVerdict, Modality, SpeakerVerdict, Word
from gate.span import Span
from models import prompt
from models.constrained import UNHEARD, Limits
from models.exemplars import ExemplarJudge
from models.export_llama import GGUF_INPUT, build
from models.llama_runtime import ContextFullError, LlamaRuntime
from models.policy_smollm2 import MODEL_NAME, READINGS_FILE, SmolLM2Policy, load
from models.protocols import MASK_MARK, HeardSegment, ModelId, Policy, PolicyInput
from models.store import Store
from models.store_errors import ModelError
from tests.test_models_llama import write_gguf
from tests.tiny_llama import export_tiny, random_state, tiny_config
from tools.catalogue import ToolCatalogue

TINY = ModelId("tiny", "0" * 64)
TOOLS = ToolCatalogue.builtin(()).all()
OWNER, OTHER, UNSURE = SpeakerVerdict.OWNER, SpeakerVerdict.OTHER, SpeakerVerdict.UNSURE


def segment(
    text: str, speaker: SpeakerVerdict = OWNER, distance: DistanceVerdict = DistanceVerdict.NEAR
) -> HeardSegment:
    words = tuple(Word(word, Span(index, index + 1), 1.0) for index, word in enumerate(text.split()))
    return HeardSegment(words, speaker, distance)


def turn(
    text: str,
    speaker: SpeakerVerdict = OWNER,
    distance: DistanceVerdict = DistanceVerdict.NEAR,
    tools: Sequence[ToolFacts] = TOOLS,
    question: str | None = None,
    context: tuple[HeardSegment, ...] = (),
) -> PolicyInput:
    return PolicyInput("t1", segment(text, speaker, distance), context, tools, question)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny_policy")
    export_tiny(path, seed=7)
    return path


@pytest.fixture(scope="module")
def tiny(directory: Path) -> SmolLM2Policy:
    return SmolLM2Policy(directory, TINY, threads=1, tools=TOOLS, limits=Limits(answer_tokens=8))


class TestAnyWeights:
    def test_it_is_a_policy(self, tiny: SmolLM2Policy) -> None:
        policy: Policy = tiny
        assert policy.model == TINY

    @given(
        st.lists(
            st.sampled_from(["text", "Ben", "that", MASK_MARK, "$60", "[Mute]", "<|im_end|>", "seven.", '"']),
            max_size=8,
        ),
        st.sampled_from(list(SpeakerVerdict)),
        st.sampled_from(list(DistanceVerdict)),
    )
    @settings(max_examples=30, deadline=None)
    def test_what_it_writes_always_parses(
        self, tiny: SmolLM2Policy, words: list[str], speaker: SpeakerVerdict, distance: DistanceVerdict
    ) -> None:
        output = tiny.propose(turn(" ".join(words), speaker, distance))
        parsed = grammar.parse(output.text)
        assert not isinstance(parsed, Unparseable)
        if not words:
            assert isinstance(parsed, MuteAction)
            return
        scores = dict(output.action_scores)
        assert set(scores) <= {str(kind) for kind in ActionKind}
        assert sum(np.exp(list(scores.values()))) == pytest.approx(1.0, abs=1e-6)
        assert output.steps > 0

    @pytest.mark.parametrize("label", [tool.name for tool in TOOLS])
    def test_each_tool_is_filled_from_the_words_or_asked_about(
        self, tiny: SmolLM2Policy, label: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            ExemplarJudge, "logprobs", lambda *_: {label: -0.1, prompt.ANSWER: -3.0, prompt.SELF_TALK: -4.0}
        )
        words = ["please", "20", "dollars", "to", "Ben", "for", "the", "red", "door", "at", "seven"]
        output = tiny.propose(turn(" ".join(words)))
        action = grammar.parse(output.text)
        facts = next(tool for tool in TOOLS if tool.name == label)
        if isinstance(action, ToolAction):
            assert action.call.name == label
            values = [action.call.params.get(p.name) for p in facts.params if p.kind is ParamKind.TEXT]
            assert all(value is None or str(value) in " ".join(words) for value in values)
        else:
            assert isinstance(action, PardonAction)
            assert action.question in [param.ask for param in facts.params]
            assert "pardon" in dict(output.action_scores)

    @pytest.mark.parametrize("label", [prompt.SELF_TALK, prompt.SIDE_TALK, prompt.BYSTANDER])
    def test_what_is_not_for_it_is_muted_in_one_pass(
        self, tiny: SmolLM2Policy, label: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ExemplarJudge, "logprobs", lambda *_: {label: -0.1, prompt.ANSWER: -3.0, "make_call": -4.0})
        output = tiny.propose(turn("call Ben"))
        assert (output.text, output.steps) == (grammar.MUTE, 1)

    def test_the_same_turn_gives_the_same_text_whatever_came_before(self, tiny: SmolLM2Policy) -> None:
        first = tiny.propose(turn("text Ben that dinner is ready"))
        tiny.propose(turn("what is the capital of France?"))
        tiny.propose(turn("who was it?", question="Who spoke?", context=(segment("hello there", OTHER),)))
        assert tiny.propose(turn("text Ben that dinner is ready")) == first

    def test_other_tools_are_prepared_when_they_come(self, tiny: SmolLM2Policy) -> None:
        door = next(tool for tool in TOOLS if tool.name == "unlock_door")
        play = ToolFacts(
            "play_music", "Play some music.", Risk.LOW, (ParamFacts("what", ParamKind.TEXT, True, "What?"),)
        )
        for tools in ((door,), (door, play), TOOLS):
            for said in ("unlock the door", "play some jazz", "order two pizzas"):
                action = grammar.parse(tiny.propose(turn(said, tools=tools)).text)
                assert not isinstance(action, ToolAction) or action.call.name in {tool.name for tool in tools}

    def test_no_tools_at_all_still_answers_or_mutes(self, tiny: SmolLM2Policy) -> None:
        action = grammar.parse(tiny.propose(turn("call Ben", tools=())).text)
        assert isinstance(action, MuteAction | AnswerAction | PardonAction)

    def test_turn_too_long_for_the_context_raises_and_the_next_one_works(self, tiny: SmolLM2Policy) -> None:
        with pytest.raises(ContextFullError):
            tiny.propose(turn("word " * 2000))
        assert tiny.propose(turn("call Ben")).text

    def test_several_threads_get_what_one_gets(self, tiny: SmolLM2Policy) -> None:
        said = ["call Ben", "what time is it?", "text Eva that I am late", "hm, where was I"]
        alone = [tiny.propose(turn(text)) for text in said]
        together: dict[int, object] = {}

        def work(index: int) -> None:
            together[index] = tiny.propose(turn(said[index % 4]))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [together[index] for index in range(8)] == [alone[index % 4] for index in range(8)]

    def test_whoever_types_counts_as_the_owner_close_by(self, tiny: SmolLM2Policy) -> None:
        typed = PolicyInput("t", segment("call Ben", UNSURE, DistanceVerdict.UNSURE), (), TOOLS, modality=Modality.TEXT)
        assert tiny.propose(typed) == tiny.propose(turn("call Ben"))

    def test_live_path_imports_neither_torch_nor_transformers(self, directory: Path) -> None:
        code = (
            "import sys\n"
            "from pathlib import Path\n"
            "from gate.catalogue import ParamFacts, ParamKind, Risk, ToolFacts\n"
            "from gate.evidence import DistanceVerdict, SpeakerVerdict, Word\n"
            "from gate.span import Span\n"
            "from models.policy_smollm2 import SmolLM2Policy\n"
            "from models.protocols import HeardSegment, ModelId, PolicyInput\n"
            "who = ParamFacts('contact', ParamKind.TEXT, True, 'Who?')\n"
            "tools = (ToolFacts('make_call', 'Call.', Risk.MEDIUM, (who,)),)\n"
            "policy = SmolLM2Policy(Path(sys.argv[1]), ModelId('tiny', '0'), 1, tools)\n"
            "for said in ('call Ben', 'what is this?', 'hm', 'text Eva'):\n"
            "    words = tuple(Word(word, Span(0, 1), 1.0) for word in said.split())\n"
            "    segment = HeardSegment(words, SpeakerVerdict.OWNER, DistanceVerdict.NEAR)\n"
            "    assert policy.propose(PolicyInput('t', segment, (), tools)).text\n"
            "assert not {'torch', 'transformers', 'onnx', 'gguf'} & set(sys.modules), 'heavy import on the live path'\n"
        )
        root = Path(__file__).parent.parent
        env = os.environ | {"PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", code, str(directory)], capture_output=True, text=True, env=env, check=False
        )
        assert done.returncode == 0, done.stderr


class TestPrompt:
    def test_the_prompt_holds_the_contract_and_worked_calls(self) -> None:
        assert grammar.MUTE in prompt.CALL_PROMPT
        assert 'the contact to text: "Ben"' in prompt.CALL_PROMPT
        assert MASK_MARK not in prompt.CALL_PROMPT

    def test_worked_calls_ask_for_arguments_as_the_tools_that_ship_do(self) -> None:
        """A description that changes in a tool without changing in the prompt would make its calls worse unseen."""
        for tool in TOOLS:
            for param in tool.params:
                assert f'{param.description}: "' in prompt.CALL_PROMPT, (tool.name, param.name)

    def test_unheard_words_are_shown_as_the_stand_in(self) -> None:
        assert prompt.words_of(segment(f"transfer {MASK_MARK} dollars")) == f"transfer {UNHEARD} dollars"

    def test_dialogue_names_the_first_voice_first(self) -> None:
        lines = prompt.dialogue(
            [
                segment("I like tea.", OTHER),
                segment("And you?", OTHER),
                segment("Coffee.", OWNER),
                segment("Hm.", UNSURE),
            ]
        )
        assert lines == "First speaker: I like tea. And you?\nSecond speaker: Coffee.\nUnknown speaker: Hm."

    def test_every_tool_that_ships_has_examples_and_they_differ(self) -> None:
        for tool in TOOLS:
            assert len(prompt.EXEMPLARS[tool.name]) >= 5
        texts = Counter(text for said in prompt.EXEMPLARS.values() for text in said)
        assert max(texts.values()) == 1

    def test_known_examples_cover_every_choice_of_tools(self) -> None:
        known = set(prompt.known_exemplars())
        for tools in (TOOLS, TOOLS[:3], TOOLS[4:6], ()):
            assert set(prompt.exemplars(tools)) <= known

    def test_tool_without_examples_is_shown_by_its_description(self) -> None:
        play = ToolFacts("play_music", "Play some music.", Risk.LOW, ())
        assert "Play some music." in [
            example.text for example in prompt.exemplars([play]) if example.label == "play_music"
        ]


class TestExemplarJudge:
    @staticmethod
    def clouds(seed: int, sizes: Sequence[int], apart: float = 6.0) -> tuple[np.ndarray, list[str], np.ndarray]:
        rng = np.random.default_rng(seed)
        centres = rng.standard_normal((len(sizes), 24)) * apart / 4
        states = np.concatenate(
            [centre + rng.standard_normal((size, 24)) for centre, size in zip(centres, sizes, strict=True)]
        )
        return states.astype(np.float32), [f"k{k}" for k, size in enumerate(sizes) for _ in range(size)], centres

    def test_new_points_go_to_their_own_kind(self) -> None:
        states, labels, centres = self.clouds(0, [8, 8, 16])
        judge = ExemplarJudge(states, labels)
        rng = np.random.default_rng(9)
        for kind, centre in enumerate(centres):
            for _ in range(10):
                scores = judge.logprobs((centre + rng.standard_normal(24)).astype(np.float32))
                assert max(scores, key=lambda label: scores[label]) == f"k{kind}"
                assert sum(np.exp(list(scores.values()))) == pytest.approx(1.0)

    def test_kind_with_one_example_is_not_drowned_by_one_with_many(self) -> None:
        states, labels, centres = self.clouds(1, [1, 60], apart=8.0)
        scores = ExemplarJudge(states, labels).logprobs(centres[0].astype(np.float32))
        assert scores["k0"] > scores["k1"]

    def test_clearer_examples_make_surer_judgements(self) -> None:
        vague = ExemplarJudge(*self.clouds(2, [10, 10], apart=0.5)[:2])
        clear = ExemplarJudge(*self.clouds(2, [10, 10], apart=8.0)[:2])
        assert clear.sharpness > vague.sharpness

    def test_leave_one_out_scores_equal_refitting_without_each(self) -> None:
        """The closed form that the temperature rests on, against leaving each example out by hand."""
        states, labels, _ = self.clouds(3, [5, 5])
        judge = ExemplarJudge(states, labels)
        kernel = judge._examples @ judge._examples.T
        targets = np.eye(2)[[int(label[1]) for label in labels]] - 0.5
        inverse = np.linalg.inv(kernel + 0.5 * np.eye(10))
        quick = targets - (inverse @ targets) / np.diag(inverse)[:, None]
        for left in range(10):
            rest = [index for index in range(10) if index != left]
            fitted = np.linalg.solve(kernel[np.ix_(rest, rest)] + 0.5 * np.eye(9), targets[rest])
            np.testing.assert_allclose(kernel[left, rest] @ fitted, quick[left], atol=1e-9)
        np.testing.assert_allclose(judge._weights, inverse @ targets, atol=1e-9)

    def test_unusable_states_are_refused(self) -> None:
        states, labels, _ = self.clouds(4, [3, 3])
        with pytest.raises(ValueError, match="labels"):
            ExemplarJudge(states, labels[:-1])
        with pytest.raises(ValueError, match="two kinds"):
            ExemplarJudge(states[:3], labels[:3])
        broken = states.copy()
        broken[0, 0] = np.nan
        with pytest.raises(ValueError, match="finite"):
            ExemplarJudge(broken, labels)
        with pytest.raises(ValueError, match="finite"):
            ExemplarJudge(states, labels).logprobs(broken[0])


class TestBuild:
    def test_build_from_gguf_gives_a_directory_that_the_policy_loads(self, tmp_path: Path) -> None:
        source, out = tmp_path / "source", tmp_path / "out"
        source.mkdir()
        out.mkdir()
        config = tiny_config()
        write_gguf(source / "tiny.gguf", config, random_state(config, 7))
        stages: list[str] = []
        build({GGUF_INPUT: source}, out, stages.append)
        assert stages[:3] == ["reading the weights", "writing the graph", "writing the tokenizer"]
        with np.load(out / READINGS_FILE) as stored:
            assert stored["states"].shape == (len(prompt.known_exemplars()), 2 * config.hidden_size)
        stored_policy = SmolLM2Policy(out, TINY, threads=1, tools=TOOLS)
        (out / READINGS_FILE).unlink()
        fresh = SmolLM2Policy(out, TINY, threads=1, tools=TOOLS)
        said = turn("text Ben that I'm late")
        stored_output, fresh_output = stored_policy.propose(said), fresh.propose(said)
        assert stored_output.text == fresh_output.text
        np.testing.assert_allclose(
            [score for _, score in stored_output.action_scores],
            [score for _, score in fresh_output.action_scores],
            atol=1e-3,
        )


# The real model -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> SmolLM2Policy:
    try:
        policy = load(Store(offline=True), threads=2)
    except ModelError as error:
        pytest.skip(f"{MODEL_NAME} is not in the cache: {error}")
    policy.prepare(TOOLS)
    return policy


COMMANDS = {
    "Message Daniel that the package has arrived.": "send_message",
    "Give Uncle Robert a call.": "make_call",
    "Plan lunch with Omar for next Wednesday.": "schedule_event",
    "Order five boxes of printer paper.": "place_order",
    "Wire 250 dollars to Nina.": "transfer_money",
    "Please unlock the office door.": "unlock_door",
    "Turn the heater on.": "control_device",
    "I want an Uber to Elm Street.": "book_ride",
    "Wipe my search history.": "delete_data",
    "Share where I am with Priya for thirty minutes.": "share_location",
}
QUESTIONS = (
    "Who painted the Mona Lisa?",
    "What's the tallest mountain in the world?",
    "What language do they speak in Brazil?",
)
NOT_FOR_IT = (
    "Now where was I, page twelve or thirteen?",
    "Oh man, this coffee is cold again.",
    "Dad, have you seen my charger anywhere?",
    "He told me they sold the house in March.",
    "Did you hear what happened to Karen at work?",
)
MASKED = {
    f"Message {MASK_MARK} that the package has arrived.": "Who should I text?",
    f"Wire {MASK_MARK} dollars to Nina.": "How much should I send?",
    f"Order {MASK_MARK} please.": "What should I order?",
    f"Delete {MASK_MARK}.": "What should I delete?",
}


@pytest.mark.slow
class TestRealModel:
    @pytest.mark.parametrize(("said", "name"), COMMANDS.items())
    def test_owners_command_becomes_its_tool(self, real: SmolLM2Policy, said: str, name: str) -> None:
        action = grammar.parse(real.propose(turn(said)).text)
        assert isinstance(action, ToolAction)
        assert action.call.name == name

    @pytest.mark.parametrize("said", QUESTIONS)
    def test_question_is_answered(self, real: SmolLM2Policy, said: str) -> None:
        assert isinstance(grammar.parse(real.propose(turn(said)).text), AnswerAction)

    def test_the_answer_is_the_models_own(self, real: SmolLM2Policy) -> None:
        assert "Paris" in real.propose(turn("What is the capital of France?")).text

    @pytest.mark.parametrize("said", NOT_FOR_IT)
    def test_talk_that_is_not_for_it_is_muted(self, real: SmolLM2Policy, said: str) -> None:
        assert real.propose(turn(said)).text == grammar.MUTE

    @pytest.mark.parametrize(("said", "question"), MASKED.items())
    def test_unheard_argument_is_asked_for_by_name(self, real: SmolLM2Policy, said: str, question: str) -> None:
        assert grammar.parse(real.propose(turn(said)).text) == PardonAction(question)

    def test_unheard_word_that_a_question_hangs_on_is_echoed(self, real: SmolLM2Policy) -> None:
        output = real.propose(turn(f"What is the capital of {MASK_MARK}?"))
        assert kind_of(grammar.parse(output.text)) is ActionKind.PARDON  # type: ignore[arg-type]

    def test_commands_from_afar_are_mostly_not_taken_for_the_owners(self, real: SmolLM2Policy) -> None:
        outputs = [real.propose(turn(said, OTHER, DistanceVerdict.FAR)) for said in COMMANDS]
        assert sum(output.text == grammar.MUTE for output in outputs) >= 7

    def test_arguments_are_the_words_that_were_said(self, real: SmolLM2Policy) -> None:
        action = grammar.parse(real.propose(turn("Text Maria that I will be home at seven.")).text)
        assert isinstance(action, ToolAction)
        assert dict(action.call.params) == {"recipient": "Maria", "body": "I will be home at seven"}


@pytest.mark.slow
def test_real_tokenizer_agrees_with_transformers(real: SmolLM2Policy, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    files = list(Store(offline=True).path("smollm2-135m-instruct-gguf").rglob("*.gguf"))
    oracle = transformers.AutoTokenizer.from_pretrained(files[0].parent, gguf_file=files[0].name)
    runtime = LlamaRuntime(Store(offline=True).path(MODEL_NAME))
    for text in (
        "Hello world",
        "naïve Café — “quoted”",
        "tabs\tand\n\nlines  two",
        "x=3.14159",
        "日本語 emoji 🎉",
        "I'll we've",
    ):
        assert runtime.encode(text) == oracle(text, add_special_tokens=False).input_ids, text
