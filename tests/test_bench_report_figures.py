"""The report's drawings and their numbers: every mark where its value is, and no interval that was not worked out."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

from bench.measures import Played
from bench.report.latencies import latencies_of, quantile_interval
from bench.report.plot_cues import cue_figure
from bench.report.plot_ear import ear_figure
from bench.report.plot_latency import latency_figure
from bench.report.plot_operating import curve_of, operating_figure, operating_table
from bench.report.runs import ReportedRun
from bench.report.series import line, mark
from bench.report.svg import Scale, drawing, number, rounded_up, steps, text_of, ticks
from bench.report.tables_ear import why_no_ear
from bench.report.tables_times import compute_table, latency_table
from bench.report.wording import rate_cell
from bench.stats import wilson
from tests.bench_contestants import CALL, REPLIES
from tests.bench_harness import decision, played
from tests.report_harness import reported, write_played


def run_of(folder: Path, made: list[Played]) -> ReportedRun:
    """One run."""
    return reported(write_played(folder, made))[0]


# Intervals ------------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_median_is_that_of_the_tables():
    # Binomial(10, 1/2): from the 2nd to the 9th value the coverage is 97.9%, from the 3rd to the 8th only 89.1%.
    assert quantile_interval([float(i) for i in range(1, 11)], 0.5) == (2.0, 9.0)
    # Five values do not bound it: 93.8% at most.
    assert quantile_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.5) == (None, None)
    assert quantile_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.5) == (1.0, 6.0)


def test_a_p95_of_few_trials_has_no_upper_bound_and_is_not_given_one():
    # 0.95 ** n is below 2.5% from n = 72 on: only then can the longest of them bound the quantile.
    assert quantile_interval([float(i) for i in range(71)], 0.95)[1] is None
    assert quantile_interval([float(i) for i in range(72)], 0.95)[1] == 71.0


def test_the_interval_covers_the_quantile_as_often_as_it_says():
    draw, hits = random.Random(5), 0
    for _ in range(600):
        low, high = quantile_interval(sorted(draw.expovariate(1.0) for _ in range(80)), 0.9)
        truth = -math.log(0.1)
        hits += (low is None or low <= truth) and (high is None or truth <= high)
    assert hits / 600 >= 0.94


def test_quantiles_stand_with_their_bounds_and_counts(tmp_path: Path):
    made = [
        played(f"t{i}", "self_talk", "x", "mute", "mute", decisions=[decision("mute", at_s=2.5 + 0.01 * i)])
        for i in range(10)
    ]
    run = run_of(tmp_path / "run", made)
    cell = next(row for row in latency_table([run]).groups[0].rows if row.head == "Right mutes").cells[0]
    assert cell.main == "p50 0.545 s"
    assert cell.lines == ("0.510 to 0.580", "p95 0.586 s (at least 0.570)", "max 0.590 s", "n 10")
    stage = compute_table([run]).groups[0].rows[0]
    assert (stage.head, stage.cells[0].main, stage.cells[0].lines[-1]) == ("speech", "p50 0.100 s", "n 10")
    missing = next(row for row in latency_table([run]).groups[0].rows if row.head == "False executions").cells[0]
    assert (missing.main, missing.tone) == ("none", "absent")


def test_a_rate_without_an_interval_says_so():
    assert rate_cell({"n": 3, "k": None, "rate": 0.5, "ci95": None}).lines == ("n 3", "no interval")


# Operating curves -----------------------------------------------------------------------------------------------------


def call(name: str, right: str, speaker: float) -> Played:
    """A trial with one proposed call; the owner threshold is at 0.6."""
    made = decision(
        "tool" if speaker >= 0.6 else "mute", "make_call", speaker=speaker, raw=REPLIES[CALL.text], words=CALL.text,
        proposed="tool", outcome="done" if speaker >= 0.6 else None,
    )  # fmt: skip
    return played(
        name, "speaker_switch", "same/near/0" if right == "tool" else "diff/near/0", right, made.action,
        tool="make_call" if right == "tool" else None, target="make_call", decisions=[made],
    )  # fmt: skip


def calls() -> list[Played]:
    """Commands score 0.9, 0.7, 0.55, 0.5; bystanders 0.65, 0.3, 0.2, 0.1: one of four runs, two of four do not."""
    commands = [call(f"c{i}", "tool", score) for i, score in enumerate((0.9, 0.7, 0.55, 0.5))]
    return commands + [call(f"b{i}", "mute", score) for i, score in enumerate((0.65, 0.3, 0.2, 0.1))]


def test_the_mark_of_an_operating_curve_is_where_the_gate_ran(tmp_path: Path):
    run = run_of(tmp_path / "run", calls())
    figure = operating_figure([run])
    drawn = figure.drawings[0]
    assert "A run ran at 25.0% false executions and 50.0% false rejections" in drawn
    x, y = Scale(0, 1, 46, 366), Scale(0, 1, 300, 44)
    found = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="5" class="mark s0"/>', drawn)
    assert found is not None
    assert (float(found[1]), float(found[2])) == (pytest.approx(x(0.25)), pytest.approx(y(0.5)))
    path = re.search(r'<path d="(M[^"]+)" class="line s0"/>', drawn)
    assert path is not None
    places = [tuple(map(float, pair.split())) for pair in path[1][1:].split("L")]
    assert len(places) == len(curve_of(run, "speaker"))
    assert places == [
        (pytest.approx(x(execution), abs=0.01), pytest.approx(y(rejection), abs=0.01))
        for _, execution, rejection in curve_of(run, "speaker")
    ]


def test_the_equal_error_point_stands_with_both_counts_and_intervals(tmp_path: Path):
    cell = operating_table([run_of(tmp_path / "run", calls())]).groups[0].rows[0].cells[0]
    low, high = (bound * 100 for bound in wilson(1, 4))
    assert cell.main == "25.0%"
    assert cell.lines[1] == f"FE 1/4, {low:.1f} to {high:.1f}%"
    assert cell.lines[2] == f"FR 1/4, {low:.1f} to {high:.1f}%"


def test_a_run_without_a_gate_has_no_curve_and_is_named(tmp_path: Path):
    ungated = run_of(tmp_path / "ungated", [played("t", "self_talk", "x", "mute", "tool", ran="make_call")])
    figure = operating_figure([ungated])
    assert figure.drawings == ()
    assert any("No curve: A ungated" in note for note in figure.notes)
    assert {cell.main for row in operating_table([ungated]).groups[0].rows for cell in row.cells} == {"not run"}


# Latency --------------------------------------------------------------------------------------------------------------


def timed(seconds: list[float], outcome: str = "mute") -> list[Played]:
    """Trials of one outcome with these latencies; the speech ends at 2 s."""
    return [
        played(f"{outcome}{i}", "self_talk", "x", "mute", outcome, decisions=[decision(outcome, at_s=2.0 + value)])
        for i, value in enumerate(seconds)
    ]


def test_each_outcome_has_its_own_distribution_with_its_count_and_median(tmp_path: Path):
    figure = latency_figure([run_of(tmp_path / "run", timed([0.4, 0.5, 0.6]) + timed([1.0], "pardon"))])
    assert len(figure.drawings) == 2
    mutes, pardons = figure.drawings
    assert ">Right mutes</text>" in mutes
    assert ">A: n 3, median 0.50 s</text>" in mutes
    assert ">A: n 1, median 1.00 s</text>" in pardons


def test_the_distribution_ends_at_one_and_its_median_is_at_a_half(tmp_path: Path):
    drawn = latency_figure([run_of(tmp_path / "run", timed([0.2, 0.4, 0.6, 0.8, 1.0]))]).drawings[0]
    found = re.search(r'<path d="(M[^"]+)" class="line s0"/>', drawn)
    assert found is not None
    heights = [float(value) for value in re.findall(r"V([\d.]+)", found[1])]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == 44, "the top of the frame"
    x, y = Scale(0, 1, 46, 366), Scale(0, 1, 230, 44)
    assert f'<circle cx="{number(x(0.6))}" cy="{number(y(0.5))}" r="5" class="mark s0"/>' in drawn


def test_one_time_out_does_not_squeeze_the_rest_and_is_said(tmp_path: Path):
    drawn = latency_figure([run_of(tmp_path / "run", timed([0.5] * 99 + [60.0]))]).drawings[0]
    assert "1 beyond" in drawn
    assert ">60</text>" not in drawn
    heights = [float(value) for value in re.findall(r"V([\d.]+)", drawn)]
    assert min(heights) >= 44


def test_a_decision_before_the_labelled_end_is_drawn_and_not_lost(tmp_path: Path):
    run = run_of(tmp_path / "run", timed([-0.25, 0.5]))
    assert latencies_of(run, "right_mute") == [pytest.approx(-0.25), pytest.approx(0.5)]
    assert ">-0.2</text>" in latency_figure([run]).drawings[0]


def test_without_any_latency_there_is_nothing_to_draw(tmp_path: Path):
    typed = played("t", "speaker_switch", "text_only", "tool", "mute", tool="make_call", text="Call.", segments=())
    assert latency_figure([run_of(tmp_path / "run", [typed])]).drawings == ()


# Cues -----------------------------------------------------------------------------------------------------------------


def test_the_heat_map_marks_what_is_right_in_each_condition(tmp_path: Path):
    made = calls()
    drawn = cue_figure([run_of(tmp_path / "run", made)]).drawings[0]
    # same/near/0: two of four ran; diff/near/0: three of four were muted.
    assert re.findall(r'class="value (h\d+)">([^<]+)<', drawn) == [
        ("h5", "50.0%"), ("h5", "50.0%"), ("h8", "75.0%"), ("h2", "25.0%"),
    ]  # fmt: skip
    targets = re.findall(r'<rect x="([\d.]+)"[^>]* class="target (h\d+)"/>', drawn)
    assert [level for _, level in targets] == ["h5", "h8"], "the tool near by the same speaker, else the mute"
    assert float(targets[0][0]) > float(targets[1][0]), "the tool's column is the right one"
    assert drawn.count('class="dot') == 2, "colour and outline are not the only sign"
    assert "same/near/0 right tool ran 50.0% (2/4)" in drawn


def test_typed_commands_have_a_selection_and_no_mute(tmp_path: Path):
    typed = played("t", "speaker_switch", "text_only", "tool", "tool", tool="make_call", ran="make_call", text="Call.")
    drawn = cue_figure([run_of(tmp_path / "run", [typed])]).drawings[0]
    assert re.findall(r'class="value (h\d+)">([^<]+)<', drawn) == [("h10", "100.0%")]


def test_a_condition_that_only_another_run_has_is_not_run_here(tmp_path: Path):
    first = write_played(tmp_path / "a", calls()[:4])
    second = write_played(tmp_path / "b", calls()[4:])
    one, two = cue_figure(reported(first, second)).drawings
    assert one.count(">not run</text>") == 2
    assert two.count(">not run</text>") == 2


# EAR ------------------------------------------------------------------------------------------------------------------


def asked(name: str, condition: str, did: str, verdict: str | None, query: str) -> Played:
    """One realisation of a question."""
    answerable = not condition.startswith("semantic_degrading")
    given = [("answer" if answerable else "repair", verdict)] if verdict else []
    return played(
        name, "ear", condition, "answer" if answerable else "pardon", did, said="Perhaps.", triplet=query,
        verdicts=given,  # type: ignore[arg-type]
    )  # fmt: skip


def test_each_mask_has_its_row_and_its_mark(tmp_path: Path):
    made = [
        asked("o1", "original", "answer", "correct", "q1"), asked("o2", "original", "answer", "incorrect", "q2"),
        asked("n1", "semantic_degrading/noise", "pardon", "explicit_repair", "q1"),
        asked("n2", "semantic_degrading/noise", "pardon", "generic_refusal", "q2"),
        asked("w1", "semantic_degrading/noise+wide", "pardon", "explicit_repair", "q1"),
    ]  # fmt: skip
    competence, repair, ear = ear_figure([run_of(tmp_path / "run", made)]).drawings
    assert re.findall(r'class="entry">([^<]+)<', repair) == ["noise", "noise+wide"]
    x = Scale(0, 1, 108, 364)
    assert f'cx="{number(x(0.75))}"' in repair
    assert f'cx="{number(x(0.5))}"' in competence
    assert "noise A 60.0% (n 2)" in ear, "the harmonic mean of 0.5 and 0.75"
    assert "whisker s0" in repair


def test_a_mask_that_nobody_has_judged_is_said_to_be_so_in_its_row(tmp_path: Path):
    made = [
        asked("o1", "original", "answer", "correct", "q1"),
        asked("n1", "semantic_degrading/noise", "pardon", None, "q1"),
        asked("s1", "semantic_degrading/silence", "pardon", "other", "q1"),
    ]  # fmt: skip
    run = run_of(tmp_path / "run", made)
    competence, repair, ear = ear_figure([run]).drawings
    assert repair.count(">not judged, 1 waiting</text>") == 1
    assert ear.count(">not judged, 1 waiting</text>") == 1
    assert "waiting" not in competence
    assert why_no_ear(run, "R", "music").main == "not run"
    assert why_no_ear(run, "EAR", "music").main == "not run", "competence alone makes no EAR"


def test_where_no_filler_word_has_the_wide_window_the_narrow_one_that_stands_in_is_waited_for(tmp_path: Path):
    made = [
        asked("o1", "original", "answer", "correct", "q1"),
        asked("i1", "semantic_invariant/noise", "answer", None, "q1"),
        asked("w1", "semantic_degrading/noise+wide", "pardon", "explicit_repair", "q1"),
    ]
    run = run_of(tmp_path / "run", made)
    assert run.summary["ear"]["by_mask"]["noise+wide"]["C"] is None
    assert why_no_ear(run, "C", "noise+wide").lines == ("1 waiting",)


# The pieces -----------------------------------------------------------------------------------------------------------


def test_ticks_are_round_and_within_the_axis():
    assert ticks(0, 1) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 0.1) == [0.0, 0.02, 0.04, 0.06, 0.08, 0.1]
    assert ticks(-0.3, 2.5) == [0.0, 1.0, 2.0]
    for high in (0.13, 0.7, 3.0, 12.0, 60.0):
        found = ticks(0, high)
        assert 2 <= len(found) <= 7
        assert found[-1] <= high


def test_an_axis_ends_at_or_above_its_highest_value():
    assert [rounded_up(value) for value in (0.1, 0.11, 0.99, 1.0, 2.2, 61.0)] == [
        0.1, pytest.approx(0.15), 1.0, 1.0, 2.5, 80.0,
    ]  # fmt: skip


def test_coordinates_are_short_and_never_minus_nought():
    assert [number(value) for value in (-0.001, 0.0, 100.0, 1.005, 12.3456, -2.5)] == [
        "0", "0", "100", "1", "12.35", "-2.5",
    ]  # fmt: skip


def test_a_step_keeps_its_value_until_the_next_point():
    unit = Scale(0, 1, 0, 10)
    assert steps([(0, 0), (0.5, 1), (1, 1)], unit, unit) == "M0 0H5V10H10V10"


def test_text_is_escaped_in_titles_and_attributes():
    drawn = drawing('a"b', "<t>", "&d", 1, 1, ())
    assert "<t>" not in drawn
    assert 'id="a&quot;b-title">&lt;t&gt;<' in drawn
    assert text_of("\ud800x\x07") == "?x\N{REPLACEMENT CHARACTER}"


def test_no_two_of_the_first_runs_look_alike_without_their_colours():
    shapes = {
        re.sub(r's\d', "", mark(run, 0, 0) + line("M0 0", run)) for run in range(7)
    }  # fmt: skip
    assert len(shapes) == 7
    assert len({mark(run, 0, 0) + line("M0 0", run) for run in range(42)}) == 42
