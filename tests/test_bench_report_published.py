"""The published rows: as they are printed, marked as other audio, and never mixed with ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report.published import FOREIGN, published, published_groups
from bench.report.tables_ear import ear_table
from bench.report.tables_vgbench import COLUMNS, proximity_table, published_cues, vgbench_table
from bench.report.writing import ReportOptions, write_report
from bench.score_ear import harmonic
from bench.score_vgbench import EIGHT_CONDITIONS
from tests.bench_harness import played
from tests.report_harness import Page, reported, write_played


def figures(kind: str, system: str, heading: str = "") -> dict[str, float]:
    """The figures of a system."""
    return next(
        dict(block.rows[system])
        for block in published()
        if block.kind == kind and system in block.rows and heading in block.heading
    )


def test_figures_are_those_that_the_papers_print():
    assert figures("vgbench", "Kimi-Audio-7B") == {
        "side_talk": 38.2, "self_talk": 30.5, "switch_mute": 14, "same_speaker_select": 53, "text_only_select": 44,
    }  # fmt: skip
    assert figures("vgbench", "Gemini-3.8-flash")["self_talk"] == 68.6
    assert figures("vgbench", "Qwen + TwS adaptation") == {
        "side_talk": 23.0, "self_talk": 85.7, "switch_mute": 6, "same_speaker_select": 90, "text_only_select": 82,
    }  # fmt: skip
    assert figures("vgbench", "VoxGate, supervised (SFT)")["switch_mute"] == 91.3
    assert figures("vgbench", "VoxGate, SFT + GRPO") == {"side_talk": 70.9, "self_talk": 60.0, "switch_mute": 92.5}
    assert figures("cues", "VoxGate SFT + GRPO")["diff/near/600"] == 53.75
    assert figures("cues", "Cue-balanced SFT", "Scene")["same/far/0"] == 3.75
    assert figures("proximity", "Cue-balanced SFT") == {"accuracy": 66.88}
    assert figures("ear", "Gemini 2.5", "WDYL") == {"C": 99.5, "R": 63.0, "EAR": 77.2}
    assert figures("ear", "DeSTA2.5-Audio", "SLUE") == {"C": 39.5, "R": 27.7, "EAR": 32.6}


def test_the_printed_ear_is_the_harmonic_mean_of_what_is_printed_beside_it():
    checked = 0
    for block in published():
        for system, row in block.rows.items():
            if block.kind != "ear" or (system == "Baichuan-Omni" and row["EAR"] == 5.0):
                continue  # the paper's own row does not add up: 70.3 and 3.1 give 5.9
            assert harmonic(row["C"], row["R"]) == pytest.approx(row["EAR"], abs=0.06), system
            checked += 1
    assert checked == 13


def test_counts_that_the_text_gives_agree_with_its_percentages():
    assert figures("vgbench", "VoxGate, supervised (SFT)")["switch_mute"] == pytest.approx(100 * 73 / 80, abs=0.06)
    assert figures("vgbench", "VoxGate, SFT + GRPO")["switch_mute"] == pytest.approx(100 * 74 / 80, abs=0.06)


def test_all_that_is_quoted_is_named_and_belongs_to_a_column_of_ours():
    columns = {
        "vgbench": set(COLUMNS),
        "cues": set(EIGHT_CONDITIONS),
        "proximity": {"accuracy"},
        "ear": {"C", "R", "EAR"},
    }
    for block in published():
        assert block.where.startswith(("table", "section"))
        assert block.rows
        for row in block.rows.values():
            assert row.keys() <= columns[block.kind]
            assert all(0 <= value <= 100 for value in row.values())
        assert block.n.keys() <= columns[block.kind]


def test_published_rows_are_marked_as_other_audio_and_stand_apart_from_ours(tmp_path: Path):
    run = reported(write_played(tmp_path / "run", [played("t", "self_talk", "x", "mute", "mute")]))[0]
    for table in (vgbench_table([run]), ear_table([run]), proximity_table([run])):
        ours, *others = table.groups
        assert not ours.foreign
        assert [row.head for row in ours.rows] == ["A run"]
        assert others
        for group in others:
            assert group.foreign
            assert FOREIGN in group.title
            assert all(row.run is None for row in group.rows)
    assert all(group.foreign and FOREIGN in group.title for group in published_cues().groups)


def test_what_a_paper_does_not_state_is_not_made_up():
    group = published_groups("vgbench", tuple(COLUMNS))[2]
    grpo = next(row for row in group.rows if row.head == "VoxGate, SFT + GRPO")
    assert [cell.main for cell in grpo.cells] == ["70.9%", "60.0%", "92.5%", "not stated", "not stated"]
    assert [cell.lines for cell in grpo.cells] == [(), (), ("n 80",), (), ()]


def test_the_marking_is_in_the_page_and_in_the_markdown(tmp_path: Path):
    folder = write_played(tmp_path / "run", [played("t", "self_talk", "x", "mute", "mute")])
    write_report(ReportOptions((folder,), tmp_path / "r.html", tmp_path / "r.md"))
    content = (tmp_path / "r.html").read_text(encoding="utf-8")
    for text in (Page(content).text, (tmp_path / "r.md").read_text(encoding="utf-8")):
        assert text.count(FOREIGN) == len(published())
        assert "arXiv:2609.32536" in text
    assert content.count('<tbody class="foreign">') == len(published())
