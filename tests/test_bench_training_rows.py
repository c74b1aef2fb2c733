"""Rows from the benchmark's scripts: each in its own split, so that no figure measured on test was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.build.ear_scripts import EarScripts, load_ear_scripts
from bench.build.scripts import Scripts, load_scripts
from bench.training_rows import build_all, main, material_of, nearest, scaled
from gate.actions import MuteAction, ToolAction
from gate.grammar import parse
from models.training.policy.lines import SPLITS, CommandLine, QuestionLine
from models.training.policy.mixture_overlap import HeldOut, normalised
from models.training.policy.mixture_recipe import SHIPPED
from models.training.policy.rows import Row, read_rows

SMALL = scaled(SHIPPED, 0.03)


@pytest.fixture(scope="module")
def scripts() -> Scripts:
    return load_scripts()


@pytest.fixture(scope="module")
def ear() -> EarScripts:
    return load_ear_scripts()


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A few lines of a project of its own, one of which is held out and trained on."""
    (tmp_path / "lines" / "self_talk").mkdir(parents=True)
    for split, texts in (
        ("train", ("I ought to ring the bank before noon.", "Pay the man, he said, and I paid the wrong man.")),
        ("dev", ("Where would I be if I were a pair of glasses?",)),
        ("test", ("I ought to ring the bank before noon!",)),
    ):
        rows = "".join(f"planning\t{text}\n" for text in texts)
        (tmp_path / "lines" / "self_talk" / f"{split}_01.tsv").write_text(f"frame\ttext\n{rows}", encoding="utf-8")
    return tmp_path / "lines"


def texts_of(row: Row) -> list[str]:
    return [normalised(segment.words) for segment in (*row.context, row.segment)]


def test_every_script_is_material_of_its_own_split_alone(scripts: Scripts, ear: EarScripts) -> None:
    texts = {split: set(material_of(split, scripts, ear).texts()) for split in SPLITS}
    assert not texts["train"] & texts["dev"]
    assert not texts["train"] & texts["test"]
    assert not texts["dev"] & texts["test"]
    for switch in scripts.speaker_switch:
        assert switch.command in texts[switch.split]
        assert switch.context in texts[switch.split]
    # The cue studies are test only, and no training row may come of them.
    assert not {cue.command for cue in scripts.cue_commands} & (texts["train"] | texts["dev"] | texts["test"])


def test_a_command_brings_the_sentence_by_which_its_speaker_became_the_owner(scripts: Scripts, ear: EarScripts) -> None:
    by_text = {line.text: line for line in material_of("train", scripts, ear).commands}
    switch = next(script for script in scripts.speaker_switch if script.split == "train")
    assert by_text[switch.command].opening == switch.context
    assert by_text[switch.command].calls[0].name == switch.tool


def test_side_talk_keeps_its_order_and_what_is_right_for_the_assistants_part(scripts: Scripts, ear: EarScripts) -> None:
    by_text = {line.meant.text: line for line in material_of("dev", scripts, ear).both}
    for script in scripts.side_talk:
        if script.split == "dev":
            line = by_text[script.assistant]
            assert line.assistant_first is (script.order == "assistant_first")
            assert isinstance(line.meant, QuestionLine if script.tool is None else CommandLine)
            assert isinstance(line.meant, CommandLine) or line.meant.accepted == script.answers


def test_texts_that_are_the_same_are_as_near_as_can_be() -> None:
    found = nearest("test", "talk", ["the cat sat on the mat"], ["a dog barked at noon", "the cat sat on the mat"])
    assert found is not None
    assert found.most == pytest.approx(1.0)
    assert nearest("test", "talk", [], ["a dog"]) is None


@pytest.mark.slow
def test_nothing_held_out_is_trained_on_and_the_same_seed_gives_the_same_bytes(
    scripts: Scripts, ear: EarScripts, lines: Path, tmp_path: Path
) -> None:
    built = build_all(tmp_path / "one", SMALL, lines=lines)
    again = build_all(tmp_path / "two", SMALL, lines=lines)
    for split in SPLITS:
        assert (tmp_path / "one" / f"{split}.jsonl").read_bytes() == (tmp_path / "two" / f"{split}.jsonl").read_bytes()
    assert built.too_near == again.too_near == 1
    held_out = HeldOut(text for split in ("dev", "test") for text in material_of(split, scripts, ear).texts())
    rows = list(read_rows(tmp_path / "one" / "train.jsonl"))
    assert rows
    assert not [row.id for row in rows if any(len(text) > 12 and held_out.is_near(text) for text in texts_of(row))]
    assert not [row.id for row in rows if normalised("I ought to ring the bank before noon.") in texts_of(row)]
    told = json.loads((tmp_path / "one" / "census.json").read_text(encoding="utf-8"))
    assert told["train"]["rows"] == len(rows)
    pairs = {row.pair: parse(row.target) for row in rows if row.pair}
    assert {type(action) for action in pairs.values()} <= {ToolAction, MuteAction}


@pytest.mark.slow
def test_the_command_prints_its_census_and_real_text_stays_out_of_held_out_rows(
    lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "clinc150.jsonl").write_text(
        json.dumps({"text": "what is the zephyr index of my account", "intent": "balance"}) + "\n", encoding="utf-8"
    )
    out = tmp_path / "rows"
    assert main(["--out", str(out), "--texts", str(texts), "--lines", str(lines), "--scale", "0.03"]) == 0
    printed = capsys.readouterr().out
    assert "## train: " in printed
    assert "Not trained on, as held-out texts say nearly the same: 1 lines." in printed
    assert "zephyr" in (out / "train.jsonl").read_text(encoding="utf-8").lower()
    assert "zephyr" not in "".join((out / f"{split}.jsonl").read_text(encoding="utf-8") for split in ("dev", "test"))
