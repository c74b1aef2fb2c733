"""WearVox (Lin et al., ICLR 2026) in the protocol of 384 items that VGBench measures retention with (appendix E).

A: 59 closed-book and 55 grounded questions to answer; B: 58 recordings to abstain from; C: 112 tool calls; D: 100 live
translations. The files' own layout is not published, so they are read by a column map, as VGBench is. What the
protocol judges beyond the action (tool arguments, translations) is kept in the fields ``reference`` and ``params``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.loaders.rows import (
    Columns,
    LoaderError,
    Row,
    audio_file,
    read_table,
    relative,
    trial_id,
    trial_of,
    trials_of,
)
from bench.trials import Expected, Trial

PROTOCOL: Final[Mapping[str, int]] = {
    "A/closed_book": 59, "A/grounded": 55, "B/abstain": 58, "C/tool": 112, "D/translation": 100,
}  # fmt: skip
"""How many items of each task the protocol has: 384 in all."""
TASKS: Final[Mapping[str, str]] = {
    "closed_book": "A/closed_book", "closed-book": "A/closed_book", "grounded": "A/grounded", "abstain": "B/abstain",
    "side_talk": "B/abstain", "tool": "C/tool", "tool_call": "C/tool", "translation": "D/translation",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WearvoxColumns:
    """Which column holds what.

    Attributes:
        id: the item's id.
        task: what kind of item it is.
        audio: path of the recording.
        reference: the right answer or translation, a text or a list of accepted ones; of a tool item, the call as JSON,
            ``{"name": …, "params": …}``; not read of items to abstain from.
        grounding: what a grounded question is answered from; given to the policy as text beside the audio.
        transcript: what is said, where the file tells it.
        tasks: how the tasks are called.
        ignored: columns that may be there and are not read.
    """

    id: str = "id"
    task: str = "task"
    audio: str = "audio"
    reference: str = "reference"
    grounding: str = "grounding"
    transcript: str = "transcript"
    tasks: Mapping[str, str] = field(default_factory=lambda: TASKS)
    ignored: frozenset[str] = frozenset()

    def check(self) -> Columns:
        """As the readers take them."""
        return Columns(
            frozenset({self.id, self.task, self.audio}),
            self.ignored | {self.reference, self.grounding, self.transcript},
        )


def load_wearvox(
    table: Path, audio: Path, manifest_folder: Path, columns: WearvoxColumns | None = None, *, protocol: bool = True
) -> list[Trial]:
    """Read the items.

    Args:
        table: ``.jsonl`` or ``.tsv``.
        audio: folder in which the recordings are found.
        manifest_folder: where the manifest will lie; its audio paths are relative to that.
        columns: which column holds what; None for the default names.
        protocol: whether the items must be the 384 of the protocol; False for any others.

    Returns:
        The trials in the table's order, all of the split test.

    Raises:
        LoaderError: when the table is wrong, a row has an unknown task, no reference, no audio, or the id of another,
            or the protocol's numbers are not met; names every such row.
    """
    chosen = columns or WearvoxColumns()
    rows = read_table(table, chosen.check())
    trials = trials_of(rows, lambda row: [_trial(row, audio, manifest_folder, chosen)], table)
    counts = Counter(trial.condition for trial in trials)
    if protocol and counts != Counter(PROTOCOL):
        listed = ", ".join(f"{task} {counts[task]} of {wanted}" for task, wanted in PROTOCOL.items())
        raise LoaderError(
            f"{table}: is not the protocol's {sum(PROTOCOL.values())} items: {listed}; to read them all the same, pass "
            "--any-number (protocol=False)"
        )
    return trials


def _trial(row: Row, audio: Path, manifest_folder: Path, columns: WearvoxColumns) -> Trial:
    task = columns.tasks.get(row.text(columns.task))
    if task is None:
        known = ", ".join(sorted(columns.tasks))
        raise LoaderError(f"{row.where}: no task {row.text(columns.task)!r}; there are {known}")
    fields: dict[str, Any] = {
        "id": trial_id("wearvox", row.text(columns.id)), "family": "wearvox", "condition": task,
        "audio": relative(audio_file(audio, row.text(columns.audio), row.where), manifest_folder), "split": "test",
    }  # fmt: skip
    if task == "A/grounded":
        fields["question"] = row.text(columns.grounding)
    if (transcript := row.optional(columns.transcript)) is not None:
        fields["transcript"] = transcript
    return trial_of(fields | _right(row, task, columns.reference), row.where)


def _right(row: Row, task: str, column: str) -> dict[str, Any]:
    if task == "B/abstain":
        return {"expected": Expected(action="mute")}
    if task == "C/tool":
        call = _call(row, column)
        expected = Expected(action="tool", tool=call["name"])
        return {"expected": expected, "target_tool": call["name"], "params": call["params"]}
    answers = row.texts(column)
    return {"expected": Expected(action="answer", answer=answers), "reference": list(answers)}


def _call(row: Row, column: str) -> dict[str, Any]:
    value = row.cells.get(column)
    try:
        call = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise LoaderError(f"{row.where}: the column {column!r} is no JSON: {error}") from error
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not isinstance(call.get("params"), dict):
        raise LoaderError(f"{row.where}: the column {column!r} is no call with name and params")
    return call
