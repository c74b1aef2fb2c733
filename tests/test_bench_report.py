"""The report's page and its Markdown: whole, self-contained, readable by everybody, and true to the summaries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatch
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from agent.exit_codes import ExitCode
from bench import cli
from bench.judgements import JUDGEMENTS
from bench.provenance import CONFIG
from bench.report.blocks import Folded, Table
from bench.report.contents import sections_of
from bench.report.errors import ReportError
from bench.report.failures import Failures
from bench.report.players import AudioMode
from bench.report.tables_ear import ear_by_mask, ear_table
from bench.report.tables_gate import gate_breakdowns
from bench.report.tables_vgbench import cue_table, proximity_table, vgbench_table
from bench.report.wording import absent_cell, rate_cell
from bench.report.writing import PAGE, ReportOptions, write_report
from bench.run import MANIFEST_COPY
from bench.run import run as play
from bench.runlog import RUN_LOG
from bench.score import SUMMARY, ScoreError
from bench.trials import Expected, Segment, write_manifest
from tests.bench_contestants import NAME, UNGATED
from tests.bench_harness import decision, here, options, played, small_corpus
from tests.report_harness import Page, pretend_corpus, pretend_run, reported, write_played
from tests.test_architecture import clock_reads, tree

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = (
    """</script></style></title><script>alert(1)</script><img src=x onerror="alert(1)">'"&amp;<svg/onload=alert(1)>"""
)


def pages(folders: tuple[Path, ...], out: Path, **options: Any) -> tuple[str, str]:
    """The page and the Markdown of some runs."""
    write_report(ReportOptions(folders, out / "report.html", out / "report.md", **options))
    return (out / "report.html").read_text(encoding="utf-8"), (out / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Three runs of a small pretended benchmark; the second is not judged, and was made otherwise."""
    folder = tmp_path_factory.mktemp("benchmark")
    trials = pretend_corpus(folder / "corpus", commands=4, questions=4)
    return (
        pretend_run(folder / "raw", trials, skill=0.3, seed=1, gate=False),
        pretend_run(folder / "unjudged", trials, skill=0.6, seed=2, judged=False, pace="wall"),
        pretend_run(folder / "gated", trials, skill=0.9, seed=3),
    )


@pytest.fixture(scope="module")
def written(runs: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Their page and their Markdown."""
    manifest = runs[0].parent / "corpus" / "manifest.jsonl"
    return pages(runs, tmp_path_factory.mktemp("out"), manifest=manifest)


@pytest.fixture(scope="module")
def page(written: tuple[str, str]) -> Page:
    """The page, taken apart; this also checks that its tags are balanced."""
    return Page(written[0])


# The page is whole ----------------------------------------------------------------------------------------------------


def test_the_page_runs_nothing_and_asks_no_other_host_for_anything(written: tuple[str, str], page: Page):
    names = Counter(name for name, _ in page.elements)
    assert not names.keys() & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    for name, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "style"], name
        for key in ("src", "href", "data", "poster", "srcset", "action"):
            value = attributes.get(key)
            assert value is None or not re.match(r"[a-z][a-z0-9+.-]*:|//", value, re.IGNORECASE), value
    style = written[0].split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(meta["content"] for meta in page.named("meta") if meta.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_every_link_leads_somewhere_and_no_name_is_used_twice(page: Page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    links = [attributes["href"] for attributes in page.named("a")]
    assert links
    assert {link.removeprefix("#") for link in links if link} <= set(ids)
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(key) or "").split()) <= set(ids)


def test_tables_drawings_and_players_can_be_read_and_reached_without_eyes_or_mouse(
    written: tuple[str, str], page: Page
):
    content = written[0]
    assert '<html lang="en">' in content
    for table in re.findall(r"<table.*?</table>", content, re.DOTALL):
        assert re.search(r"<caption><span>[^<]+", table)
        assert set(re.findall(r"<th (?!scope=\"(?:col|row|rowgroup)\")", table)) == set()
        assert "<th>" not in table
    for box in (attributes for attributes in page.named("div") if attributes.get("class") == "scroll"):
        assert (box["role"], box["tabindex"]) == ("region", "0")
        assert box["aria-label"]
    drawings = re.findall(r"<svg.*?</svg>", content, re.DOTALL)
    shown = [drawing for drawing in drawings if 'aria-hidden="true"' not in drawing.split(">")[0]]
    assert len(shown) >= 3 + 3 + 3 + 3, "operating curves, latencies, cues, EAR"
    for drawing in shown:
        assert 'role="img"' in drawing
        assert re.search(r"<title id=[^>]+>[^<]+</title><desc id=[^>]+>[^<]+</desc>", drawing)
    players = page.named("audio")
    assert players
    for player in players:
        assert "controls" in player
        assert player["preload"] == "none", "a page with a thousand players must not load a thousand recordings"
        assert (player["aria-label"] or "").startswith("Recording of ")


def test_colours_can_be_told_from_their_grounds_in_both_themes():
    style = (ROOT / "bench/report/style.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")[:2]
    for theme in (light, dark.split("}\n}")[0]):
        colours = dict(re.findall(r"--([a-z]+\d*): (#[0-9a-f]{6})", theme))
        for run in range(6):
            assert contrast(colours[f"s{run}"], colours["card"]) >= 3, "marks and lines"
        for level in range(11):
            assert contrast(colours[f"t{level}"], colours[f"h{level}"]) >= 4.5, "figures in the heat map"
        for text in ("text", "soft", "link", "danger", "good"):
            assert contrast(colours[text], colours["page"]) >= 4.5, text
        assert contrast(colours["text"], colours["warn"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """The contrast of two colours (WCAG 2.2)."""

    def luminance(colour: str) -> float:
        shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# It is true -----------------------------------------------------------------------------------------------------------


def test_the_rates_are_those_of_the_summary_with_their_counts_and_intervals(runs: tuple[Path, ...], page: Page):
    text = page.text
    for run in reported(*runs):
        for key in ("false_execution", "false_rejection", "wrong_tool", "unneeded_pardon", "missed_pardon"):
            rate = run.summary["gate"][key]
            low, high = rate["ci95"]
            told = f"{rate['rate']:.1%} {rate['k']}/{rate['n']} {low * 100:.1f} to {high * 100:.1f}%"
            assert told in text, (run.title, key)


def test_the_figures_beside_the_published_ones_are_those_of_their_conditions(runs: tuple[Path, ...]):
    for run in reported(*runs):
        scores, ear = run.summary["vgbench"], run.summary["ear"]
        switch = scores["speaker_switch"]
        found = vgbench_table([run]).groups[0].rows[0].cells
        assert found[1] == rate_cell(scores["self_talk"]["mute"])
        assert found[2] == rate_cell(switch["diff/far/600"]["mute"])
        same = rate_cell(switch["same/near/0"]["select"])
        assert (found[3].main, found[3].lines) == (same.main, (*same.lines, "same/near/0"))
        assert found[4] == rate_cell(switch["text_only"]["select"])
        assert proximity_table([run]).groups[0].rows[0].cells == (rate_cell(scores["proximity_rule"]["accuracy"]),)
        for name, rates in switch.items():
            row = next(row for row in cue_table([run]).groups[0].rows if row.head == name)
            assert row.cells[1] == rate_cell(rates["select"])
            assert row.cells[0] == (rate_cell(rates["mute"]) if "mute" in rates else absent_cell("n/a"))
        if run.name != "unjudged":
            assert found[0] == rate_cell(scores["side_talk"]["correct"])
            assert ear_table([run]).groups[0].rows[0].cells == tuple(rate_cell(ear[key]) for key in ("C", "R", "EAR"))
            by_mask = ear_by_mask([run])
            assert by_mask is not None
            noise = [row.cells[0] for group in by_mask.groups for row in group.rows if row.head == "noise"]
            assert noise == [rate_cell(ear["by_mask"]["noise"][key]) for key in ("C", "R", "EAR")]


def test_breakdowns_hold_every_group_of_the_summary_and_no_other(runs: tuple[Path, ...]):
    some = reported(*runs)
    folded = gate_breakdowns(some)
    assert [block.summary.split(" by ")[0] for block in folded if isinstance(block, Folded)] == [
        "False execution", "False rejection", "Wrong tool", "Unneeded Pardon", "Missed Pardon",
    ]  # fmt: skip
    table = folded[0].blocks[0] if isinstance(folded[0], Folded) else None
    assert isinstance(table, Table)
    rate = some[0].summary["gate"]["false_execution"]
    expected = {
        "By family": rate["by_family"], "By tool that the words name": rate["by_tool"],
        **{f"By condition: {family}": found for family, found in rate["by_condition"].items()},
    }  # fmt: skip
    assert {group.title for group in table.groups} == expected.keys()
    for group in table.groups:
        found = {row.head: row.cells[0] for row in group.rows}
        assert found == {name: rate_cell(value) for name, value in expected[group.title].items()}


def test_other_labels_are_used_and_said_to_be_others(tmp_path: Path):
    one = played("s", "self_talk", "x", "mute", "tool", ran="make_call", target="make_call")
    folder = write_played(tmp_path / "a", [one])
    right = {"expected": Expected(action="tool", tool="make_call"), "family": "direct"}
    write_manifest(tmp_path / "corrected.jsonl", [one.trial.model_copy(update=right)])
    before, after = pages((folder,), tmp_path)[1], pages((folder,), tmp_path, manifest=tmp_path / "corrected.jsonl")[1]
    assert "scored with other labels" not in before
    assert "A a is scored with other labels than those that it was run with." in after
    rate = "False execution (a tool ran where none was right)"
    assert rows_of(before)[rate][0] == ["100.0% (1/1; 20.7 to 100.0%)"]
    assert rows_of(after)[rate][0] == ["not run"]


def test_what_is_not_judged_or_not_run_is_said_and_never_shown_as_nought(tmp_path: Path):
    silent = [played("s", "self_talk", "planning", "mute", "mute")]
    waiting = [
        played("q", "ear", "original", "answer", "answer", said="Steak, I think.", accepted=("steak",), triplet="q"),
        played("r", "ear", "semantic_degrading/noise", "pardon", "pardon", said="Pardon?", triplet="q"),
        played("t", "side_talk", "assistant_first", "answer", "answer", said="It is noon."),
    ]
    folders = write_played(tmp_path / "silent", silent), write_played(tmp_path / "waiting", waiting)
    content, markdown = pages(folders, tmp_path)
    cells = rows_of(markdown)
    assert cells["A silent (silent)"][0] == ["not run", "100.0% (1/1; 20.7 to 100.0%)", "not run", "not run", "not run"]
    assert cells["B waiting (waiting)"][0] == ["not judged (1 waiting)", "not run", "not run", "not run", "not run"]
    assert cells["A silent (silent)"][2] == ["not run"] * 3, "C, R and EAR"
    assert cells["B waiting (waiting)"][2] == [f"not judged ({n} waiting)" for n in (1, 1, 2)]
    assert cells["Explicit repair"][0] == ["not run", "not judged"]
    assert (
        cells["Wrong answer (A question that can be answered was answered wrongly.)"][0][1] == "not judged (1 waiting)"
    )
    assert "1 side-talk response, 1 answer, 1 repair" in Page(content).text
    assert "Not run: there is nothing to draw." in content, "no operating curve"


def rows_of(markdown: str) -> dict[str, list[list[str]]]:
    """The cells of each row of the tables, by the row's head."""
    found: dict[str, list[list[str]]] = {}
    for line in markdown.splitlines():
        if line.startswith("| "):
            head, *cells = (cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            found.setdefault(unescape(head), []).append([unescape(cell) for cell in cells])
    return found


def test_the_summary_that_lies_there_is_not_believed(tmp_path: Path):
    folder = write_played(tmp_path / "run", [played("s", "self_talk", "planning", "mute", "mute")])
    before = pages((folder,), tmp_path)
    (folder / SUMMARY).write_text('{"gate": "perfect"}', encoding="utf-8")
    assert pages((folder,), tmp_path) == before


def test_judgements_that_are_added_later_are_in_the_next_report(tmp_path: Path):
    one = played("r", "ear", "semantic_degrading/noise", "pardon", "pardon", said="Pardon?", triplet="q")
    folder = write_played(tmp_path / "run", [one])
    assert "not judged" in pages((folder,), tmp_path)[1]
    (folder / JUDGEMENTS).write_text('{"id": "r", "kind": "repair", "verdict": "explicit_repair", "judge": "j-1"}\n')
    markdown = pages((folder,), tmp_path)[1]
    assert "not judged" not in markdown
    assert rows_of(markdown)["Judges"] == [["j-1"]]


def test_runs_that_do_not_compare_are_warned_of_before_any_figure(tmp_path: Path):
    first = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    machine = {"processor": "Another", "cores": 8, "memory_gib": 64.0, "system": "Linux", "python": "3.11.9"}
    second = write_played(
        tmp_path / "b",
        [played("s", "self_talk", "x", "mute", "mute"), played("t", "self_talk", "x", "mute", None, status="error")],
        pace="free", machine=machine, seed=7, code={"git_commit": None, "git_dirty": None, "sha256": "0" * 64},
    )  # fmt: skip
    third = write_played(
        tmp_path / "c", [played("s", "self_talk", "x", "mute", "mute")],
        code={"git_commit": "f" * 40, "git_dirty": True, "sha256": "0" * 64},
    )  # fmt: skip
    log = (second / RUN_LOG).read_text(encoding="utf-8").splitlines()
    content = Page(pages((first, second, third), tmp_path)[0]).text
    for sentence in (
        "different manifests (by sha256)", "different paces, so latencies do not compare: A charged, B free, C charged",
        "different machines", "different seeds", "1 trial in all of them; A 1, B 2, C 1",
        "B b was made outside a checkout", "C c was made with uncommitted changes", "B b: 1 trial came to no action",
    ):  # fmt: skip
        assert sentence in content
        assert content.index(sentence) < content.index("What the gate let through"), "before any figure"
    assert "is not complete" not in content
    (second / RUN_LOG).write_text(log[0] + "\n", encoding="utf-8")
    assert "B b is not complete: 1 trial not run." in Page(pages((first, second), tmp_path)[0]).text
    assert "Before you compare" not in pages((first,), tmp_path)[0], "nothing stands in the way of one clean run"


def test_provenance_of_every_run_is_there(runs: tuple[Path, ...], page: Page):
    for fact in (
        "c" * 12, "d" * 12, "clean", "charged", "wall", "A Processor", "2 cores, 24.0 GiB", "2025-10-09 08:53 UTC",
        "speech", "a" * 12, "numpy", "2.3.0", "test-judge", "120 s a trial",
    ):  # fmt: skip
        assert fact in page.text, fact


def test_each_run_is_compared_with_the_first_and_noise_is_called_so(tmp_path: Path):
    def run(name: str, ran: int) -> Path:
        made = [
            played(f"t{i}", "self_talk", "x", "mute", "tool" if i < ran else "mute", ran="make_call") for i in range(32)
        ]
        return write_played(tmp_path / name, made)

    markdown = pages((run("first", 12), run("second", 0), run("third", 11)), tmp_path)[1]
    better, noise = rows_of(markdown)["gate.false_execution"]
    assert better[0:4] == ["32", "37.5%", "0.0%", "-12 +0"]
    assert better[-1] == "better"
    assert noise[-1] == "noise"
    assert "gate.false_execution, more credit in A (12): t0, t1," in markdown.replace("\\", "")
    alone = pages((tmp_path / "first",), tmp_path)[1]
    assert "What has changed" not in alone


def test_runs_without_a_common_trial_are_shown_and_said_not_to_be_compared(tmp_path: Path):
    first = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    second = write_played(tmp_path / "b", [played("t", "self_talk", "x", "mute", "mute")])
    assert "B b against A a: not compared." in Page(pages((first, second), tmp_path)[0]).text


def test_a_run_that_has_only_begun_is_reported_as_such(tmp_path: Path):
    folder = write_played(tmp_path / "begun", [played("s", "self_talk", "x", "mute", "mute")])
    (folder / RUN_LOG).write_text("", encoding="utf-8")
    content = Page(pages((folder,), tmp_path)[0]).text
    assert "A begun has no trial in its log yet." in content
    assert "0 of 1 played" in content
    assert "0.0%" not in content.split("Published mute rates")[0].split("VGBench")[1].split("Raw audio LLMs")[0]


def test_a_run_of_the_loop_itself_is_reported_with_its_recordings(tmp_path: Path):
    manifest = small_corpus(tmp_path)
    for name, policy in (("gated", NAME), ("ungated", UNGATED)):
        play(options(manifest, tmp_path / name, policy=policy), here)
    content = Page(pages((tmp_path / "gated", tmp_path / "ungated"), tmp_path, manifest=manifest)[0])
    assert "False execution 2 trials (B ungated: 2)" in content.text
    assert "Taken as it was proposed, without a gate. [proposed]" in content.text
    assert 'make_call {"contact": "my sister"} (no outcome logged: counts as run)' in content.text
    assert "diff speaker_switch, diff/near/0" in content.text
    assert "The other runs: A gated stayed silent." in content.text
    assert "diff.wav" in {player["src"] for player in content.named("audio")}


# It is safe -----------------------------------------------------------------------------------------------------------


def hostile_run(folder: Path) -> Path:
    """A run in which everything that can hold a free text holds a hostile one."""
    said = Segment(start=1.0, end=2.0, speaker=HOSTILE, distance="near", text=HOSTILE, role="trigger")
    made = decision(
        "tool", HOSTILE, params={HOSTILE: [HOSTILE]}, answer=HOSTILE, missing_param=HOSTILE, reason=HOSTILE,
        detail=HOSTILE, raw=HOSTILE, words=HOSTILE, turn=HOSTILE, proposed=HOSTILE, outcome=HOSTILE,
        compute={HOSTILE: 0.1},
    )  # fmt: skip
    one = played("t", "direct", HOSTILE, "mute", "tool", target=HOSTILE, decisions=[made], segments=(said,))
    trial = one.trial.model_copy(update={"question": HOSTILE, "audio": f"{HOSTILE}.wav"})
    result = one.result.model_copy(update={"reason": HOSTILE, "transcript": HOSTILE, "answer": HOSTILE})
    failed = played("u", "direct", HOSTILE, "answer", None, status="error", accepted=(HOSTILE,), text=HOSTILE)
    failed_result = failed.result.model_copy(update={"reason": HOSTILE})
    machine = {
        "processor": HOSTILE, "cores": 1, "memory_gib": 1.0, "system": HOSTILE, "python": HOSTILE,
        "libraries": {HOSTILE: HOSTILE},
    }  # fmt: skip
    return write_played(
        folder,
        [type(one)(trial, result, one.judgements), type(failed)(failed.trial, failed_result, failed.judgements)],
        policy=HOSTILE, models={HOSTILE: HOSTILE}, machine=machine,
    )  # fmt: skip


def test_nothing_that_a_log_says_becomes_part_of_the_page(tmp_path: Path):
    folders = hostile_run(tmp_path / "<b onclick=alert(1)>"), hostile_run(tmp_path / "two")
    content, markdown = pages(folders, tmp_path)
    found = Page(content)
    assert not {name for name, _ in found.elements} & {"script", "img", "b", "link"}
    assert [key for _, attributes in found.elements for key in attributes if key.startswith("on")] == []
    assert found.text.count(" ".join(HOSTILE.split())) > 20, "it is shown, as text"
    assert "<script" not in content
    for line in markdown.splitlines():
        assert not re.sub(r"</?(details|summary)>", "", line).count("<"), line


def test_text_that_html_cannot_hold_does_not_break_the_page(tmp_path: Path):
    odd = played("t", "direct", "x", "mute", "tool", decisions=[decision("tool", "make_call", words="a\x00b\x1b[31m")])
    content = pages((write_played(tmp_path / "run", [odd]),), tmp_path)[0]
    assert "\x00" not in content
    assert "\x1b" not in content
    assert "a\N{REPLACEMENT CHARACTER}b" in content


def test_tables_in_markdown_keep_their_columns_whatever_stands_in_them(tmp_path: Path):
    one = played("t", "direct", "a|b\nc", "mute", "tool", target="x|y", ran="make_call")
    markdown = pages((write_played(tmp_path / "run", [one], policy="p|q"),), tmp_path)[1]
    width = None
    for line in markdown.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        columns = len(re.findall(r"(?<!\\)\|", line))
        assert columns == (width or columns), line
        width = columns
    assert r"a\|b c" in markdown


# It is the same again -------------------------------------------------------------------------------------------------


def test_the_same_folders_give_the_same_bytes(runs: tuple[Path, ...], written: tuple[str, str], tmp_path: Path):
    manifest = runs[0].parent / "corpus" / "manifest.jsonl"
    again = pages(runs, tmp_path, manifest=manifest)
    assert again[1] == written[1]
    # Only the links to the recordings depend on where the page lies.
    without = [re.sub(r' src="[^"]*"', "", content) for content in (again[0], written[0])]
    assert without[0] == without[1]


@pytest.mark.slow
def test_no_hash_seed_and_no_working_folder_changes_a_byte(runs: tuple[Path, ...], tmp_path: Path):
    made = []
    for seed in ("1", "2"):
        out = tmp_path / "report.html"
        command = [sys.executable, "-m", "bench.cli", "report", *map(str, runs), "--out", str(out)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "TZ": f"UTC-{seed}"}
        subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
        made.append(out.read_bytes())
    assert made[0] == made[1]


@pytest.mark.parametrize("path", sorted((ROOT / "bench/report").glob("*.py")), ids=lambda path: path.name)
def test_the_report_reads_no_clock(path: Path):
    assert clock_reads(tree(path)) == set()


def test_the_files_that_the_report_needs_are_in_the_package():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert "bench.report" in setuptools["packages"]
    patterns = setuptools["package-data"]["bench.report"]
    others = [path.name for path in (ROOT / "bench/report").iterdir() if path.is_file() and path.suffix != ".py"]
    assert others
    assert [name for name in others if not any(fnmatch(name, pattern) for pattern in patterns)] == []


# The command ----------------------------------------------------------------------------------------------------------


def bench(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_the_command_writes_a_page_beside_the_first_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    second = write_played(tmp_path / "b", [played("s", "self_talk", "x", "mute", "tool", ran="make_call")])
    assert bench("report", first, second) == ExitCode.OK
    assert capsys.readouterr().out.split() == [str(first / PAGE)]
    assert (first / PAGE).exists()
    assert {path.name for path in first.iterdir()} == {CONFIG, MANIFEST_COPY, RUN_LOG, PAGE}


def test_markdown_alone_makes_no_page(tmp_path: Path):
    folder = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    assert bench("report", folder, "--markdown", tmp_path / "deep" / "report.md") == ExitCode.OK
    assert (tmp_path / "deep" / "report.md").read_text(encoding="utf-8").startswith("# voicegate bench: A a\n")
    assert not (folder / PAGE).exists()


def test_what_can_be_mended_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    (tmp_path / "file").write_text("", encoding="utf-8")
    for arguments, says in (
        ([tmp_path / "absent"], "config.json"),
        ([folder, "--out", tmp_path / "file" / "report.html"], "cannot be written"),
        ([folder, "--manifest", tmp_path / "absent.jsonl"], "cannot be read"),
    ):
        assert bench("report", *arguments) == ExitCode.USAGE
        said = capsys.readouterr().err
        assert says in said
        assert "Traceback" not in said
    with pytest.raises(SystemExit):
        bench("report", folder, "--embed-mib", "-1")
    with pytest.raises(ReportError):
        write_report(ReportOptions((folder,), tmp_path / "file" / "x.html", audio=AudioMode.NONE))


def test_a_page_that_cannot_be_made_leaves_the_old_one_alone(tmp_path: Path):
    folder = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    pages((folder,), tmp_path)
    before = (tmp_path / "report.html").read_text(encoding="utf-8")
    other = write_played(tmp_path / "b", [played("other", "self_talk", "x", "mute", "mute")])
    (folder / MANIFEST_COPY).write_bytes((other / MANIFEST_COPY).read_bytes())
    with pytest.raises(ScoreError):
        pages((folder,), tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_failures_come_after_the_rates_and_before_the_provenance(tmp_path: Path):
    folder = write_played(tmp_path / "a", [played("s", "self_talk", "x", "mute", "mute")])
    names = [section.anchor for section in sections_of(reported(folder), Failures((), ("A a",)))]
    assert names == ["gate", "vgbench", "cues", "ear", "operating", "latency", "failures", "provenance"]
