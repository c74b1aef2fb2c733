"""Rows as the live loop hears them: ``python -m bench.heard_rows MANIFEST --split train --out DIR``.

Plays a built corpus through the loop with a policy that only takes notes. Each turn becomes a row with the words that
the recogniser wrote, the verdicts that the ears gave and the silence that was there, and with the right action of the
labelled segment that was spoken then. So a policy learns from what it will be given, mistakes of the ears included.
Beside the rows goes what was heard of each word (``states.npz``), for fusion.

What the right action is follows the labels where they speak of intent, and the ears where they speak of the source: a
command that the ears put down to somebody else, or far away, is muted, as the gate would; a bystander's command is
muted even where the ears took her for the owner. A command of which an argument was not heard is left out: nobody can
say what should have been asked.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.clock import Pace
from agent.settings import Settings
from bench.build.answers import heard as stands_in
from bench.contestants import Contestant, make_setup
from bench.progress import StepProgress
from bench.trial_runner import RunSpec, TrialRunner, bench_settings
from bench.trials import Segment, Trial, load_manifest
from gate import grammar
from gate.actions import Action, AnswerAction, MuteAction, PardonAction, ToolAction
from gate.catalogue import ToolCall, ToolFacts
from gate.evidence import DistanceVerdict, SpeakerVerdict, Word
from gate.grounding import ground_text
from gate.span import SAMPLE_RATE_HZ
from models.constrained import stripped
from models.policy_mini import word_states
from models.protocols import HeardSegment, ModelId, PolicyInput, PolicyOutput
from models.store import Store
from models.training.policy.mixture_asking import missed
from models.training.policy.rows import Row, RowSegment, write_rows

MISHEARD_ALIKE = 0.6
"""Similarity from which a run of heard words counts as an argument that the recogniser misspelt."""
_DECIDING = frozenset({"trigger", "assistant", "self"})

States = dict[str, npt.NDArray[np.float16]]


@dataclass
class NoteTaker:
    """A policy that writes down what it is given and mutes everything."""

    notes: list[PolicyInput] = field(default_factory=list)

    @property
    def model(self) -> ModelId:
        """It has no weights."""
        return ModelId("note-taker", "0" * 64)

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Take a note."""
        self.notes.append(turn)
        return PolicyOutput(grammar.MUTE)


def rows_of(
    trial: Trial, notes: Sequence[PolicyInput], tools: Sequence[ToolFacts]
) -> Iterator[tuple[Row, PolicyInput]]:
    """The rows of one trial, each with the turn that it was made of.

    Args:
        trial: with its labels.
        notes: what the policy was given while it was played; of a turn that was looked at twice the last look counts.
        tools: the tools' facts.
    """
    for number, turn in enumerate({turn.turn_id: turn for turn in notes}.values(), 1):
        target, kind = _asked(trial, turn) if turn.question is not None else _said(trial, turn, tools)
        if target is None:
            continue
        answers = trial.expected.answer or () if isinstance(target, AnswerAction) else ()
        pair = trial.pair if kind == "heard_command" else None
        yield (
            Row(
                f"{trial.id}.{number}", str(trial.split), kind, grammar.render(target),
                _segment(turn.segment, turn.start_sample if turn.question is None else None),
                tuple(_segment(segment, None) for segment in turn.context), turn.question, pair=pair,
                answers=tuple(answers),
            ),
            turn,
        )  # fmt: skip


def _segment(segment: HeardSegment, start_sample: int | None) -> RowSegment:
    times = None
    if start_sample is not None:
        edges = [(word.span.start_sample - start_sample, word.span.end_sample - start_sample) for word in segment.words]
        times = tuple((max(0, start) / SAMPLE_RATE_HZ, max(0, end) / SAMPLE_RATE_HZ) for start, end in edges)
    text = " ".join(word.text.replace(" ", "") for word in segment.words)
    return RowSegment(text, segment.speaker, segment.distance, round(segment.gap_before_s, 2), times)


def _asked(trial: Trial, turn: PolicyInput) -> tuple[Action | None, str]:
    """The answer where it was heard; otherwise what was missed is named."""
    assert turn.question is not None
    words = [word.text for segment in (*turn.context, turn.segment) for word in segment.words]
    answers = trial.expected.answer or ()
    if trial.expected.action == "answer" and answers and stands_in(words, answers):
        return AnswerAction(answers[0][:1].upper() + answers[0][1:] + "."), "heard_told"
    return PardonAction(missed(turn.question)), "heard_told_missed"


def _said(trial: Trial, turn: PolicyInput, tools: Sequence[ToolFacts]) -> tuple[Action | None, str]:
    spoken = _spoken_then(trial, turn.segment.words)
    if spoken is None:
        return MuteAction(), "heard_nobody"
    if spoken.role not in _DECIDING or trial.expected.action == "mute":
        return MuteAction(), f"heard_{spoken.role}"
    stranger = turn.segment.speaker is SpeakerVerdict.OTHER or turn.segment.distance is DistanceVerdict.FAR
    unknown = turn.segment.speaker is SpeakerVerdict.UNSURE and turn.segment.distance is DistanceVerdict.UNSURE
    if stranger or unknown:
        return MuteAction(), "heard_refused"
    if trial.expected.action == "answer":
        answers = trial.expected.answer or ()
        return (AnswerAction(answers[0]), "heard_question") if answers else (None, "")
    call = _call(trial, turn.segment.words, tools)
    return (None, "") if call is None else (ToolAction(call), "heard_command")


def _spoken_then(trial: Trial, words: Sequence[Word]) -> Segment | None:
    """The labelled segment that most of the words' time belongs to."""
    times = [(w.span.start_sample / SAMPLE_RATE_HZ, w.span.end_sample / SAMPLE_RATE_HZ) for w in words]
    shared = {
        index: sum(max(0.0, min(end, segment.end) - max(start, segment.start)) for start, end in times)
        for index, segment in enumerate(trial.segments)
    }
    best = max(shared, key=lambda index: shared[index], default=None)
    return None if best is None or shared[best] <= 0.0 else trial.segments[best]


def _call(trial: Trial, words: Sequence[Word], tools: Sequence[ToolFacts]) -> ToolCall | None:
    """The right call in the words that were heard; None where an argument was not."""
    wanted: dict[str, Any] = getattr(trial, "params", None) or {}
    tool = next((tool for tool in tools if tool.name == trial.expected.tool), None)
    if tool is None:
        return None
    params: dict[str, Any] = {}
    for param in tool.params:
        value = wanted.get(param.name)
        if value is None:
            continue
        if isinstance(value, str) and not param.choices:
            value = as_heard(value, words)
            if value is None:
                return None
        params[param.name] = value
    return ToolCall(tool.name, params)


def as_heard(value: str, words: Sequence[Word]) -> str | None:
    """A text argument in the words that were heard: those that say it, or the run that is most like it."""
    carriers = ground_text(value, words)
    if carriers:
        first, last = words.index(carriers[0]), words.index(carriers[-1])
        return _run(words, first, last)
    length = len(value.split())
    best, best_like = None, MISHEARD_ALIKE
    for size in range(max(1, length - 2), length + 3):
        for start in range(len(words) - size + 1):
            run = _run(words, start, start + size - 1)
            like = SequenceMatcher(None, run.casefold(), value.casefold(), autojunk=False).ratio()
            if like > best_like:
                best, best_like = run, like
    return best


def _run(words: Sequence[Word], first: int, last: int) -> str:
    texts = [word.text for word in words[first : last + 1]]
    texts[0] = texts[0].lstrip("\"'(.,!?;:")
    texts[-1] = stripped(texts[-1])
    return " ".join(texts)


def play(manifest: Path, split: str, share: tuple[int, int], settings: Settings) -> tuple[list[Row], States]:
    """Play a corpus and take notes.

    Args:
        manifest: the corpus.
        split: which part of it.
        share: which trials: the first of so many.
        settings: for the ears.

    Raises:
        ManifestError: when the manifest cannot be used.
        ModelError: when a model is missing.
    """
    index, count = share
    trials = [t for t in load_manifest(manifest) if t.split == split and t.audio is not None][index - 1 :: count]
    notes = NoteTaker()
    setup = make_setup(settings, Store())
    spec = RunSpec("note-taker", settings.model_dump_json(), Pace.FREE, 0, 300.0, manifest.parent, patience=20.0)
    runner = TrialRunner(spec, Contestant(setup.parts(notes), setup.catalogue))
    rows: list[Row] = []
    states: States = {}
    tools = setup.catalogue.all()
    try:
        with StepProgress("trials", len(trials)) as progress:
            for trial in trials:
                notes.notes.clear()
                result = runner.run(trial)
                if result.status not in ("ok", "unparseable"):
                    print(f"{trial.id}: {result.status}", file=sys.stderr)
                for row, turn in rows_of(trial, notes.notes, tools):
                    rows.append(row)
                    if turn.encoder_states is not None and turn.question is None:
                        states[row.id] = word_states(turn.encoder_states, turn.segment, turn.start_sample).astype(
                            np.float16
                        )
                progress.add(bad=result.status != "ok")
    finally:
        runner.close()
    return rows, states


def main(argv: Sequence[str] | None = None) -> int:
    """Play, and write ``heard.jsonl`` and ``states.npz``."""
    parser = argparse.ArgumentParser(prog="python -m bench.heard_rows", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--split", choices=["train", "dev", "test"], default="train")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--share", default="1/1", metavar="I/N", help="every Nth trial, from the Ith")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    index, count = (int(part) for part in args.share.split("/"))
    rows, states = play(args.manifest, args.split, (index, count), bench_settings(Settings(), threads=args.threads))
    args.out.mkdir(parents=True, exist_ok=True)
    suffix = "" if count == 1 else f".{index}"
    write_rows(args.out / f"heard{suffix}.jsonl", rows)
    arrays: dict[str, Any] = dict(states)
    np.savez(args.out / f"states{suffix}.npz", **arrays)
    for kind, number in sorted(Counter(row.kind for row in rows).items()):
        print(f"{kind}: {number}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
