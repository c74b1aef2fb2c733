"""Decoding that cannot leave the action grammar, and cannot invent an argument.

Whatever the weights are, what comes out is ``[Mute]``, one call of a tool that exists, a free answer, or "Pardon?" with
a question, and ``gate.grammar.parse`` reads it back. Inside a call:

- names and syntax are forced: they are read in one pass with what follows, never generated;
- a text argument is a pointer (after Vinyals et al. 2015, "Pointer Networks"): the likeliest contiguous run of the
  heard words, without the punctuation around it; no word serves two arguments;
- a number is one of the numbers that were said; a choice is one of the choices, and an optional one was said;
- the model may also point at words that were not heard, or at nothing. Unless all arguments together were more probably
  heard than not, the action is "Pardon?" with the question for the one that most probably went unheard, never a call.

All candidates for an argument are scored in one forward pass (``Context.score``), each with the end of its value, so
that they compete as whole strings and need no correction for length.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gate import grammar
from gate.actions import Action, ActionKind, AnswerAction, MuteAction, PardonAction, ParseFault, ToolAction, Unparseable
from gate.catalogue import JsonScalar, ParamFacts, ParamKind, ToolCall, ToolFacts
from gate.grounding import normal_form, spoken_number
from models.llama_runtime import Branch, Context, FloatArray, LlamaRuntime
from models.protocols import MASK_MARK

_AROUND_WORDS = "\"'.,!?;:()…‘’“”–—-"  # noqa: RUF001 - typographic marks are what is stripped
_LONGEST_NUMBER_WORDS = 8
_LARGEST_NUMBER = 1e15
"""Beyond it a float no longer holds every integer, so what is written would not be what was said."""
_SENTENCE_ENDS = (".", "!", "?")
_LEAST_PROBABILITY = 1e-12
_EVEN_ODDS = math.log(0.5)

UNHEARD = "X"
"""How the model reads and writes words that went unheard. It has seen this letter stand for an unknown name or thing in
every kind of text, and so points at it; at ``MASK_MARK`` itself, which it has never seen, it seldom does."""

_HANGS_ON_UNHEARD = re.compile(rf"\b{UNHEARD}\b|{re.escape(MASK_MARK)}")

IdArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one action.

    Attributes:
        answer_tokens: the most tokens of an answer or of a free question after "Pardon?".
        span_words: the longest text argument, in words.
        starts: how many first words of a text argument are followed up: the likeliest.
        replaced_tokens: how many tokens of an answer may be replaced because they would leave the grammar.
    """

    answer_tokens: int = 48
    span_words: int = 40
    starts: int = 3
    replaced_tokens: int = 16


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a call is laid out for the model while its arguments are filled in. What is returned is JSON in any case.

    Attributes:
        opening: what stands before the first argument of a tool.
        key: what names an argument, up to the mark before its value.
        between: what stands between two arguments.
        end: what stands after the last.
        quotes_all: whether numbers and booleans stand in quotation marks too.
    """

    opening: Callable[[ToolFacts], str]
    key: Callable[[ParamFacts], str]
    between: str
    end: str
    quotes_all: bool

    def is_quoted(self, param: ParamFacts) -> bool:
        """Whether the argument's value stands in quotation marks."""
        return self.quotes_all or param.kind in (ParamKind.TEXT, ParamKind.CHOICE)


JSON_FORM = CallForm(
    opening=lambda tool: f'{grammar.TOOL_OPEN}{{"name": {_quoted(tool.name)}, "params": {{',
    key=lambda param: f"{_quoted(param.name)}: ",
    between=", ",
    end="}}",
    quotes_all=False,
)
"""The action as it is written: for a model that was trained to write it."""

LISTED_FORM = CallForm(
    opening=lambda tool: "",
    key=lambda param: f"{param.description}: ",
    between="\n",
    end="\n\n",
    quotes_all=True,
)
"""A line for each argument, named by its description: for a model that reads plain words better than keys."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A call as far as the words carry it.

    Attributes:
        tool: the tool.
        params: argument values by name, in the tool's order.
        missing: the argument that the words do not carry, or None when the call is complete.
        complete_logprob: the model's log-probability that no argument went unheard.
        steps: forward passes.
    """

    tool: ToolFacts
    params: dict[str, JsonScalar]
    missing: ParamFacts | None
    complete_logprob: float
    steps: int

    def action(self) -> ToolAction | PardonAction:
        """The call, or the question for what is missing."""
        if self.missing is not None:
            return PardonAction(" ".join(self.missing.ask.split()))
        return ToolAction(ToolCall(self.tool.name, dict(self.params)))


@dataclass(frozen=True, slots=True)
class Written:
    """An action, with what it cost.

    Attributes:
        action: the action; ``text`` is how it stands in the grammar.
        steps: forward passes.
    """

    action: Action
    steps: int

    @property
    def text(self) -> str:
        """The action as ``gate.grammar.parse`` reads it."""
        return grammar.render(self.action)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A value that an argument could take: how it is spelt, which words it uses, whether some of it went unheard."""

    value: JsonScalar
    tokens: tuple[int, ...]
    words: range
    unheard: bool = False


def stripped(word: str) -> str:
    """A word without the punctuation around it. An abbreviation with inner full stops keeps its last one ("p.m.")."""
    bare = word.strip(_AROUND_WORDS)
    return bare + "." if "." in bare and word.rstrip("\"'!?;:,)").endswith(bare + ".") else bare


class ActionWriter:
    """Writes actions with one model. It holds no state between calls; the contexts do."""

    def __init__(self, runtime: LlamaRuntime, limits: Limits | None = None, unheard: str = UNHEARD) -> None:
        """Prepare the token sets.

        Args:
            runtime: the model.
            limits: bounds; the defaults when None.
            unheard: how this model reads and writes words that went unheard.
        """
        self.runtime = runtime
        self.limits = limits or Limits()
        self.unheard = unheard
        texts = runtime.token_texts()
        self.after_string = _starting_with(texts, ('"',))
        self.after_number = _starting_with(texts, (",", "}"))
        self._stops = runtime.controls(("<|im_end|>", "<|endoftext|>"))

    # Every decision the model's own -------------------------------------------------------------------------------

    def write(self, context: Context, words: Sequence[str], tools: Sequence[ToolFacts]) -> Written:
        """Write one action.

        Args:
            context: read up to where the action begins; it is left further on.
            words: the words heard, ``MASK_MARK`` where some were not.
            tools: the tools that exist.

        Raises:
            ContextFullError: when the context has no room.
        """
        scores = self.kinds(context)
        if not tools:
            del scores[ActionKind.TOOL]
        written = self.write_kind(context, max(scores, key=lambda item: scores[item]), words, tools)
        return Written(written.action, written.steps + 1)

    def write_kind(
        self, context: Context, kind: ActionKind, words: Sequence[str], tools: Sequence[ToolFacts]
    ) -> Written:
        """Write an action of a kind that is decided already. A mute takes no pass.

        Raises:
            ContextFullError: when the context has no room.
            ValueError: when a call is asked for and there are no tools.
        """
        if kind is ActionKind.MUTE:
            return Written(MuteAction(), 0)
        if kind is ActionKind.TOOL:
            draft = self.call(context, self.tool(context, tools), words)
            return Written(draft.action(), draft.steps + 1)
        return self.pardon(context) if kind is ActionKind.PARDON else self.answer(context)

    def kinds(self, context: Context) -> dict[ActionKind, float]:
        """Log-probability of each kind of action at this point. One pass.

        An answer is all that begins like none of the other forms.
        """
        forms = {
            ActionKind.MUTE: grammar.MUTE,
            ActionKind.TOOL: grammar.TOOL_OPEN,
            ActionKind.PARDON: grammar.PARDON,
        }
        branches = context.score([self.runtime.encode(form) for form in forms.values()])
        scores = {kind: branch.logprob for kind, branch in zip(forms, branches, strict=True)}
        rest = 1.0 - sum(math.exp(score) for score in scores.values())
        return scores | {ActionKind.ANSWER: math.log(max(rest, _LEAST_PROBABILITY))}

    def tool(self, context: Context, tools: Sequence[ToolFacts]) -> ToolFacts:
        """The tool whose name the model would write in a call at this point. One pass.

        Raises:
            ValueError: when there are no tools.
        """
        if not tools:
            raise ValueError("no tools to choose from")
        opening = self.runtime.encode(f'{grammar.TOOL_OPEN}{{"name": "')
        names = [self.runtime.encode(json.dumps(tool.name, ensure_ascii=False)[1:]) for tool in tools]
        branches = context.score([opening + name for name in names])
        return tools[int(np.argmax([branch.logprob for branch in branches]))]

    # A call -------------------------------------------------------------------------------------------------------

    def call(
        self,
        context: Context,
        tool: ToolFacts,
        words: Sequence[str],
        unread: Sequence[int] = (),
        form: CallForm = JSON_FORM,
    ) -> Draft:
        """Fill a tool's arguments from the words.

        Args:
            context: read up to ``unread``; it is left further on.
            tool: the tool.
            words: the words heard, ``MASK_MARK`` where some were not.
            unread: tokens up to where the action begins, to be read in one pass with the call's opening.
            form: how the call is laid out for the model.

        Raises:
            ContextFullError: when the context has no room.
        """
        filling = _Filling(self, context, words, form, [*unread, *self.runtime.encode(form.opening(tool))])
        unheard: list[tuple[float, ParamFacts]] = []
        complete = 0.0
        for index, param in enumerate(tool.params):
            if not param.required and not filling.wanted(param, tool.params[index + 1 :]):
                continue
            probability = filling.fill(param)
            unheard.append((probability, param))
            complete += math.log(max(1.0 - probability, _LEAST_PROBABILITY))
            # With a mark among the words, every argument gets its chance to claim it.
            if probability >= 0.5 and not filling.masked:
                break
        missing = None
        if complete < _EVEN_ODDS:
            # The likeliest one is asked for, and one that the tool needs before one that it can do without.
            likely = [item for item in unheard if item[0] >= 0.5] or unheard
            missing = max(likely, key=lambda item: (item[1].required, item[0]))[1]
        return Draft(tool, filling.params, missing, complete, filling.steps)

    # Free text ----------------------------------------------------------------------------------------------------

    def answer(self, context: Context, masked: bool = False) -> Written:
        """Generate an answer, greedily: one line, no mark of another action in it.

        An answer that repeats the stand-in for unheard words hangs on them. It becomes "Pardon?" with the answer's own
        words up to there as an echo question ("The capital of what?").

        Args:
            context: read up to where the answer begins; it is left further on.
            masked: whether some of the words that it answers were not heard.

        Raises:
            ContextFullError: when the context has no room.
        """
        text, steps = self._free_text(context, _is_answer, _HANGS_ON_UNHEARD if masked else None)
        found = _HANGS_ON_UNHEARD.search(text) if masked else None
        if found is None:
            return Written(_parsable(AnswerAction(text)), steps)
        question = " ".join(f"{text[: found.start()]} what?".split())
        return Written(_parsable(PardonAction(question[:1].upper() + question[1:])), steps)

    def pardon(self, context: Context) -> Written:
        """Write "Pardon?" and generate the question after it.

        Raises:
            ContextFullError: when the context has no room.
        """
        context.read(self.runtime.encode(grammar.PARDON))
        text, steps = self._free_text(context, _is_question, None)
        return Written(_parsable(PardonAction(" ".join(text.split()))), steps + 1)

    def _free_text(
        self, context: Context, fits: Callable[[str], bool], until: re.Pattern[str] | None
    ) -> tuple[str, int]:
        ids: list[int] = []
        text, steps, replaced = "", 0, 0
        while len(ids) < self.limits.answer_tokens:
            logprobs = context.next_logprobs.copy()
            while True:
                token = int(logprobs.argmax())
                longer = self.runtime.decode([*ids, token])
                if token in self._stops or fits(longer):
                    break
                replaced += 1
                if replaced > self.limits.replaced_tokens:
                    return text.strip(), steps
                logprobs[token] = -np.inf
            if token in self._stops:
                return text.strip(), steps
            if longer.strip() and "\n" in longer.lstrip():
                return longer.strip().split("\n", 1)[0].strip(), steps
            ids.append(token)
            text = longer
            if until is not None and until.search(text):
                return text, steps
            context.read([token])
            steps += 1
        # Cut off by the bound: end with the last whole sentence, if there is one.
        whole = max(text.rfind(end) for end in _SENTENCE_ENDS)
        return (text[: whole + 1] if whole > 0 else text.rstrip("\ufffd")).strip(), steps


class _Filling:
    """One call in the making: what was read, what is forced but unread, and which words are taken."""

    def __init__(
        self, writer: ActionWriter, context: Context, words: Sequence[str], form: CallForm, unread: list[int]
    ) -> None:
        self._writer = writer
        self._encode = writer.runtime.encode
        self._unheard = writer.unheard
        self._context = context
        self._words = words
        self._form = form
        self._taken: set[int] = set()
        self._unread = unread
        self._closing = ""
        self._filled = 0
        self.masked = any(MASK_MARK in word for word in words)
        self.params: dict[str, JsonScalar] = {}
        self.steps = 0

    def wanted(self, param: ParamFacts, later: Sequence[ParamFacts]) -> bool:
        """Whether the words could carry an optional argument and the model would write it next."""
        if not self._candidates(param):
            return False
        self._read()
        names = [f"{self._lead()}{self._form.key(option)}" for option in (param, *later)]
        ways = [*names, self._closing + self._form.end]
        branches = self._score([self._encode(way.rstrip(" ")) for way in ways])
        return branches[0].logprob >= max(branch.logprob for branch in branches[1:])

    def fill(self, param: ParamFacts) -> float:
        """Write the likeliest value of an argument, if it was heard.

        Returns:
            The probability that it went unheard. From one half the argument is left out.
        """
        candidates = self._candidates(param)
        quoted = self._form.is_quoted(param)
        if all(candidate.unheard for candidate in candidates):
            probability, chosen = 1.0, None
            self._unread += self._encode(self._lead() + self._form.key(param) + ('"' if quoted else ""))
        else:
            self._unread += self._encode((self._lead() + self._form.key(param)).rstrip(" ") + (' "' if quoted else ""))
            self._read()
            probability, chosen = self._choose(candidates, quoted, param.kind is ParamKind.TEXT)
        if chosen is None:
            self._unread += self._encode(self._unheard if quoted else f' "{self._unheard}"')
        else:
            self.params[param.name] = chosen.value
            self._taken |= set(chosen.words)
            self._unread += chosen.tokens
        self._closing = '"' if quoted else ""
        self._filled += 1
        return probability

    def _choose(self, candidates: list[_Candidate], quoted: bool, prune: bool) -> tuple[float, _Candidate | None]:
        if prune:
            candidates = self._promising(candidates)
        closers = self._writer.after_string if quoted else self._writer.after_number
        branches = self._score([candidate.tokens for candidate in candidates], with_next=True)
        scores = np.array([branch.logprob + _log_sum(branch.next_logprobs, closers) for branch in branches])
        shares = np.exp(scores - scores.max())
        unheard = np.array([candidate.unheard for candidate in candidates])
        probability = float(shares[unheard].sum() / shares.sum())
        if probability >= 0.5:
            return probability, None
        return probability, candidates[int(np.where(unheard, -np.inf, scores).argmax())]

    def _lead(self) -> str:
        return self._closing + (self._form.between if self._filled else "")

    def _read(self) -> None:
        if self._unread:
            self._context.read(self._unread)
            self._unread = []
            self.steps += 1

    def _score(self, continuations: Sequence[Sequence[int]], with_next: bool = False) -> list[Branch]:
        self.steps += 1
        return self._context.score(continuations, with_next)

    # Candidates ---------------------------------------------------------------------------------------------------

    def _candidates(self, param: ParamFacts) -> list[_Candidate]:
        if param.kind is ParamKind.TEXT:
            found = self._runs()
        elif param.kind in (ParamKind.NUMBER, ParamKind.INTEGER):
            found = self._numbers(param)
        elif param.kind is ParamKind.BOOLEAN:
            found = [_Candidate(value, self._spelt(value, param), range(0)) for value in (True, False)]
        else:
            said = {token for word in self._words for token in normal_form(word)}
            known = [choice for choice in param.choices if param.required or said.issuperset(normal_form(choice))]
            found = [_Candidate(choice, self._spelt(choice, param), range(0)) for choice in known]
        if self.masked or (param.required and (param.kind is ParamKind.TEXT or not found)):
            mark = self._unheard if self._form.is_quoted(param) else f' "{self._unheard}"'
            found.append(_Candidate(None, tuple(self._encode(mark)), range(0), unheard=True))
        return found

    def _spelt(self, value: JsonScalar, param: ParamFacts) -> tuple[int, ...]:
        if isinstance(value, str):
            return tuple(self._encode(_inside_quotes(value)))
        return tuple(self._encode(json.dumps(value) if self._form.is_quoted(param) else f" {json.dumps(value)}"))

    def _runs(self) -> list[_Candidate]:
        out: list[_Candidate] = []
        for start in range(len(self._words)):
            tokens: list[int] = []
            run: list[str] = []
            unheard = False
            for end in range(start, min(len(self._words), start + self._writer.limits.span_words)):
                if end in self._taken:
                    break
                word = self._words[end] if end > start else self._words[end].lstrip(_AROUND_WORDS)
                last = stripped(word)
                if MASK_MARK in self._words[end]:
                    word = last = self._unheard
                    unheard = True
                lead = " " if end > start else ""
                if last:
                    spelt = (*tokens, *self._encode(lead + _inside_quotes(last)))
                    out.append(_Candidate(" ".join([*run, last]), spelt, range(start, end + 1), unheard))
                elif end == start:
                    break  # only punctuation: the run begins with the next word
                tokens += self._encode(lead + _inside_quotes(word))
                run.append(word)
        return out

    def _numbers(self, param: ParamFacts) -> list[_Candidate]:
        found: list[tuple[range, float]] = []
        for length in range(min(_LONGEST_NUMBER_WORDS, len(self._words)), 0, -1):
            for start in range(len(self._words) - length + 1):
                run = range(start, start + length)
                if self._taken & set(run) or any(set(run) <= set(longer) for longer, _ in found):
                    continue
                value = spoken_number(" ".join(self._words[start : start + length]))
                if value is not None and abs(value) <= _LARGEST_NUMBER:
                    found.append((run, value))
        out: list[_Candidate] = []
        for run, value in sorted(found, key=lambda item: item[0].start):
            number = int(value) if value.is_integer() else value
            if isinstance(number, int) or param.kind is ParamKind.NUMBER:
                out.append(_Candidate(number, self._spelt(number, param), run))
        return out

    def _promising(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Those that begin with one of the likeliest first words, and all that went unheard."""
        likely = self._context.next_logprobs
        starts = {item.words.start: float(likely[item.tokens[0]]) for item in candidates if item.words}
        kept = set(sorted(starts, key=lambda start: -starts[start])[: self._writer.limits.starts])
        kept |= {index for index, word in enumerate(self._words) if MASK_MARK in word}
        return [item for item in candidates if not item.words or item.words.start in kept]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _inside_quotes(text: str) -> str:
    return _quoted(text)[1:-1]


def _starting_with(texts: Sequence[str], beginnings: tuple[str, ...]) -> IdArray:
    return np.array([index for index, text in enumerate(texts) if text.startswith(beginnings)], dtype=np.int64)


def _log_sum(logprobs: FloatArray | None, ids: IdArray) -> float:
    assert logprobs is not None, "the score was asked for what comes next"
    chosen = logprobs[ids]
    top = float(chosen.max())
    return top + math.log(float(np.exp(chosen - top).sum()))


def _is_answer(text: str) -> bool:
    parsed = grammar.parse(text)
    if isinstance(parsed, Unparseable):
        return parsed.fault is ParseFault.EMPTY and not text.strip()
    return parsed == AnswerAction(text.strip())


def _is_question(text: str) -> bool:
    return grammar.parse(f"{grammar.PARDON} {text}") == PardonAction(" ".join(text.split()))


def _parsable(action: Action) -> Action:
    """The action, or a bare "Pardon?" where its text would read as something else or as nothing."""
    try:
        grammar.render(action)
    except ValueError:
        return PardonAction()
    return action
