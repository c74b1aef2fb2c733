"""VGBench (*Do Audio LLMs Listen Before They Act?*, 2026) by a column map.

The benchmark's own file layout is not published. Its manifest is read as a table (JSON Lines, or TSV with a heading)
of which ``VgbenchColumns`` says what stands in which column, with the paper's words for scenarios and conditions
(section 3.2) and targets in its action grammar (appendix B): ``[Mute]``, a tool call, or an answer. Where a copy of the
benchmark calls things otherwise, say so in the map; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

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
from bench.trials import TEXT_ONLY, Expected, Family, Trial
from gate.actions import AnswerAction, MuteAction, ToolAction
from gate.grammar import parse

SCENARIOS: Final[Mapping[str, Family]] = {
    "side-talk": "side_talk", "side_talk": "side_talk", "self-talk": "self_talk", "self_talk": "self_talk",
    "speaker-switch": "speaker_switch", "speaker_switch": "speaker_switch",
}  # fmt: skip
CONDITIONS: Final[Mapping[str, str]] = {
    "single": "same/near/0", "same_speaker": "same/near/0", "same-speaker": "same/near/0", "switch": "diff/far/600",
    "text_only": TEXT_ONLY, "text-only": TEXT_ONLY, "assistant-first": "assistant_first",
    "bystander-first": "bystander_first",
}  # fmt: skip
"""The paper's three conditions of a speaker-switch pair, and the orders of side-talk; others stand as they are."""


@dataclass(frozen=True, slots=True)
class VgbenchColumns:
    """Which column holds what.

    Attributes:
        id: the item's id.
        scenario: side-talk, self-talk or speaker-switch.
        condition: of a speaker-switch item, its condition; of a side-talk item, the order of its utterances; of a
            self-talk item, its discourse frame.
        audio: path of the recording; empty for a text-only item.
        text: the words of a text-only item.
        target: what is right, in the action grammar.
        target_tool: the tool that the words name, also when the target is ``[Mute]``; may be empty.
        pair: links the conditions of one command; may be empty.
        split: train, dev or test; may be empty, which is test.
        scenarios: how the scenarios are called.
        conditions: how the conditions are called.
        ignored: columns that may be there and are not read.
    """

    id: str = "id"
    scenario: str = "scenario"
    condition: str = "condition"
    audio: str = "audio"
    text: str = "text"
    target: str = "target"
    target_tool: str = "target_tool"
    pair: str = "pair"
    split: str = "split"
    scenarios: Mapping[str, Family] = field(default_factory=lambda: SCENARIOS)
    conditions: Mapping[str, str] = field(default_factory=lambda: CONDITIONS)
    ignored: frozenset[str] = frozenset()

    def check(self) -> Columns:
        """As the readers take them."""
        return Columns(
            frozenset({self.id, self.scenario, self.condition, self.target}),
            self.ignored | {self.audio, self.text, self.target_tool, self.pair, self.split},
        )


def load_vgbench(table: Path, audio: Path, manifest_folder: Path, columns: VgbenchColumns | None = None) -> list[Trial]:
    """Read the benchmark.

    Args:
        table: its manifest, ``.jsonl`` or ``.tsv``.
        audio: folder in which the recordings are found.
        manifest_folder: where the manifest will lie; its audio paths are relative to that.
        columns: which column holds what; None for the default names.

    Returns:
        The trials in the table's order.

    Raises:
        LoaderError: when the table is wrong, a row has an unknown scenario, condition or target, no audio, or the id of
            another; names every such row.
    """
    chosen = columns or VgbenchColumns()
    rows = read_table(table, chosen.check())
    return trials_of(rows, lambda row: [_trial(row, audio, manifest_folder, chosen)], table)


def _trial(row: Row, audio: Path, manifest_folder: Path, columns: VgbenchColumns) -> Trial:
    family = columns.scenarios.get(row.text(columns.scenario))
    if family is None:
        known = ", ".join(sorted(columns.scenarios))
        raise LoaderError(f"{row.where}: no scenario {row.text(columns.scenario)!r}; there are {known}")
    condition = columns.conditions.get(row.text(columns.condition), row.text(columns.condition))
    name, text = row.optional(columns.audio), row.optional(columns.text)
    typed = condition == TEXT_ONLY
    if not typed and name is None:
        raise LoaderError(f"{row.where}: the column {columns.audio!r} is empty")
    expected = expected_of(row.text(columns.target), row.where)
    pair = row.optional(columns.pair)
    fields: dict[str, Any] = {
        "id": trial_id("vgbench", row.text(columns.id)), "family": family, "condition": condition,
        "audio": None if typed else relative(audio_file(audio, cast(str, name), row.where), manifest_folder),
        "text": text if typed else None, "expected": expected,
        "target_tool": row.optional(columns.target_tool) or expected.tool,
        "pair": None if pair is None else trial_id("vgbench", pair), "split": row.optional(columns.split) or "test",
    }  # fmt: skip
    if not typed and text is not None:
        fields["transcript"] = text
    return trial_of(fields, row.where)


def expected_of(target: str, where: str) -> Expected:
    """What is right, read from a target in the action grammar.

    Raises:
        LoaderError: when it is none of mute, one tool call and an answer; names the row.
    """
    read = parse(target)
    match read:
        case MuteAction():
            return Expected(action="mute")
        case ToolAction(call=call):
            return Expected(action="tool", tool=call.name)
        case AnswerAction(text=text):
            return Expected(action="answer", answer=(text,))
    raise LoaderError(f"{where}: the target {target!r} is no [Mute], tool call or answer: {read}")
