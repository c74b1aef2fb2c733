"""Judging a run: who is asked, what is kept, and that a response without a verdict never becomes a score."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.exit_codes import ExitCode
from bench import cli, durable_lines
from bench.judgements import JUDGEMENTS, VERDICTS, Judgements, JudgementsError, Kind
from bench.judges.case import Case, JudgeStoppedError, NotJudgedError, Verdict
from bench.judges.judging import REPLACED, JudgingRefusedError, judge_run, report_lines
from bench.judges.rules import RulesFirst, settled
from bench.judges.waiting import heard_text, waiting
from bench.progress import StepProgress
from bench.provenance import write_json
from bench.run import MANIFEST_COPY, run
from bench.runlog import RUN_LOG
from bench.score import score
from bench.trials import Expected, Segment, Trial, write_manifest
from tests.bench_harness import decision, here, options, played, small_corpus

ASSISTANT = Segment(start=0.5, end=1.5, speaker="A", distance="near", text="Which month has 28 days?", role="assistant")
BYSTANDER = Segment(start=2.0, end=3.0, speaker="A", distance="near", text="Jan, mind the cup!", role="bystander")
SAID = "I could not hear the city, which one was it?"


class Clerk:
    """A judge that says what it was told to, and remembers who it was asked about."""

    def __init__(
        self, label: str | Callable[[Case], str] | Exception = "other", name: str = "clerk", stop_at: int = -1
    ) -> None:
        self.asked: list[Case] = []
        self._label = label
        self._name = name
        self._stop_at = stop_at

    def name(self, kind: Kind) -> str:
        return f"{self._name}/{kind}"

    def judge(self, case: Case) -> Verdict:
        self.asked.append(case)
        if len(self.asked) - 1 == self._stop_at:
            raise KeyboardInterrupt
        if isinstance(self._label, Exception):
            raise self._label
        return Verdict(self._label if isinstance(self._label, str) else self._label(case), "clerk")


def ear(name: str, condition: str, did: str, said: str | None, **more: Any) -> Any:
    expected = "pardon" if "degrading" in condition else "answer"
    accepted = ("Boston",) if expected == "answer" else None
    return played(name, "ear", condition, expected, did, said=said, accepted=accepted, triplet="q", **more)


def eight_trials() -> list[Any]:
    """What a judge is asked about (``side``, ``answer``, ``repair``, ``wide``), and what it is not."""
    return [
        played("side", "side_talk", "assistant_first", "answer", "answer", said="February.",
               segments=(ASSISTANT, BYSTANDER), accepted=("February",)),
        played("tool", "side_talk", "assistant_first", "tool", "tool", tool="make_call", ran="make_call"),
        played("muted", "side_talk", "assistant_first", "answer", "mute"),
        ear("answer", "original", "answer", "She likes Boston the most."),
        ear("exact", "original", "answer", "boston."),
        ear("repair", "semantic_degrading/noise", "pardon", SAID),
        ear("wide", "semantic_degrading/noise+wide", "answer", "She likes Miami."),
        ear("silent", "semantic_degrading/noise", "mute", None),
    ]  # fmt: skip


def run_folder(folder: Path, trials: list[Any] | None = None) -> Path:
    """The folder of a finished run."""
    trials = eight_trials() if trials is None else trials
    folder.mkdir(exist_ok=True)
    whole = [one.trial.model_copy(update={"question": "Which city does she like?"}) for one in trials]
    write_manifest(folder / MANIFEST_COPY, whole)
    (folder / RUN_LOG).write_text("".join(one.result.model_dump_json() + "\n" for one in trials), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The configuration of a real run; scoring reads it."""
    folder = tmp_path_factory.mktemp("run")
    run(options(small_corpus(folder), folder / "out", limit=1), here)
    found = json.loads((folder / "out" / "config.json").read_text(encoding="utf-8"))
    return {**found, "split": None, "ids": None, "limit": None}


@pytest.fixture
def folder(tmp_path: Path, config: dict[str, Any]) -> Path:
    out = run_folder(tmp_path / "run")
    write_json(out / "config.json", config)
    return out


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JUDGEMENTS).read_text(encoding="utf-8").splitlines()]


# Who is asked ---------------------------------------------------------------------------------------------------------


def test_a_judge_is_asked_about_free_text_alone_and_rules_settle_the_rest():
    cases = {case.id: case for case in waiting(eight_trials())}
    assert {name: case.kind for name, case in cases.items()} == {
        "side": "side_talk", "answer": "answer", "repair": "repair", "wide": "repair",
    }  # fmt: skip
    assert cases["side"].assistant == ASSISTANT.text
    assert cases["side"].bystander == BYSTANDER.text
    assert cases["answer"].accepted == ("Boston",)
    assert cases["repair"].response == SAID


def test_a_judge_is_told_what_can_be_heard_of_a_masked_recording_and_never_the_masked_words():
    trial = Trial(
        id="t", family="ear", condition="semantic_degrading/noise", audio="a.wav", split="test",
        expected=Expected(action="pardon"), mask={"kind": "noise", "spans": [[0.5, 1.1]]},
        words=[[["I", 0, 4000], ["like", 4000, 8000]],
               [["red", 8000, 12000], ["plums", 12000, 17000], ["most", 17600, 20000]]],
    )  # type: ignore[call-arg]  # fmt: skip
    assert heard_text(trial) == "I like [noise] most"
    assert heard_text(trial.model_copy(update={"mask": None})) == ""
    assert heard_text(eight_trials()[5].trial) == ""


@pytest.mark.parametrize(
    ("kind", "response", "label"),
    [
        ("repair", "", "other"),
        ("repair", " … ", "other"),
        ("repair", "[Mute]", "other"),
        ("repair", '<|TOOL|>{"name": "search", "params": {}}</|TOOL|>', "other"),
        ("side_talk", "...", "neither"),
        ("side_talk", "[mute]", "neither"),
        ("answer", "", "incorrect"),
        ("answer", "The Boston!", "correct"),
    ],
)
def test_silence_and_tool_calls_are_settled_by_rule_so_no_judge_can_call_them_a_repair(
    kind: Kind, response: str, label: str
):
    clerk = Clerk(VERDICTS[kind][0])
    case = Case("x", kind, response, question="Which city?", accepted=("Boston",))
    verdict = RulesFirst(clerk).judge(case)
    assert verdict.label == label
    assert verdict.by.startswith("rule: ")
    assert clerk.asked == []


def test_words_are_left_to_the_judge():
    assert settled(Case("x", "repair", SAID, question="Which city?")) is None
    assert settled(Case("x", "answer", "Boston, I think", accepted=("Boston",))) is None


# What is kept -------------------------------------------------------------------------------------------------------


def test_a_run_is_judged_once_and_its_figures_follow_from_the_verdicts(folder: Path):
    assert score(folder)["ear"]["R"] is None
    labels = {"side": "assistant", "answer": "correct", "repair": "explicit_repair", "wide": "other"}
    clerk = Clerk(lambda case: labels[case.id])
    report = judge_run(folder, clerk)
    assert (report.total, sum(report.judged.values()), report.not_judged) == (4, 4, [])
    assert {line["id"]: (line["verdict"], line["judge"]) for line in lines_of(folder)} == {
        name: (label, f"clerk/{'side_talk' if name == 'side' else 'answer' if name == 'answer' else 'repair'}")
        for name, label in labels.items()
    }
    summary = score(folder)
    assert summary["ear"]["R"]["k"] == 1
    assert summary["ear"]["C"]["rate"] == 1
    assert summary["vgbench"]["side_talk"]["correct"]["k"] == 2
    assert summary["provenance"]["judges"] == ["clerk/answer", "clerk/repair", "clerk/side_talk"]
    again = Clerk()
    assert judge_run(folder, again).before == 4
    assert again.asked == []


def test_a_response_without_a_verdict_leaves_no_line_and_no_figure_and_is_asked_about_again(folder: Path):
    def says(case: Case) -> str:
        if case.kind == "repair":
            raise NotJudgedError("the judge replied 'hm', which is no label")
        return VERDICTS[case.kind][0]

    report = judge_run(folder, Clerk(says))
    assert [one.case.id for one in report.not_judged] == ["repair", "wide"]
    said = "\n".join(report_lines(report, folder))
    assert "not judged, 2: the judge replied 'hm'" in said
    assert "2 of 4 responses judged" in said
    assert score(folder)["ear"]["R"] is None
    assert score(folder)["ear"]["not_judged"]["repairs"] == 1
    later = Clerk("explicit_repair")
    judge_run(folder, later)
    assert [case.id for case in later.asked] == ["repair", "wide"]
    assert score(folder)["ear"]["R"]["k"] == 1


def test_a_judge_that_is_gone_is_not_asked_about_every_case(folder: Path):
    clerk = Clerk(JudgeStoppedError("it does not accept the key"))
    report = judge_run(folder, clerk)
    assert len(clerk.asked) == 1
    assert len(report.not_judged) == 4
    assert "the judge stopped: it does not accept the key" in "\n".join(report_lines(report, folder))
    assert lines_of(folder) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_judging_can_be_stopped_and_gone_on_with(folder: Path, workers: int):
    with pytest.raises(KeyboardInterrupt):
        judge_run(folder, Clerk(lambda case: VERDICTS[case.kind][0], stop_at=2), workers=workers)
    before = len(lines_of(folder))
    assert before < 4
    clerk = Clerk(lambda case: VERDICTS[case.kind][0])
    report = judge_run(folder, clerk, workers=workers)
    assert (report.before, len(clerk.asked)) == (before, 4 - before)
    assert len(Judgements.load(folder / JUDGEMENTS)) == 4


def test_a_torn_last_line_is_judged_again(folder: Path):
    judge_run(folder, Clerk(lambda case: VERDICTS[case.kind][0]))
    path = folder / JUDGEMENTS
    path.write_bytes(path.read_bytes()[:-20])
    clerk = Clerk(lambda case: VERDICTS[case.kind][0])
    assert judge_run(folder, clerk).before == 3
    assert len(clerk.asked) == 1
    assert len(Judgements.load(path)) == 4


def test_verdicts_of_two_judges_do_not_mix(folder: Path):
    judge_run(folder, Clerk(lambda case: VERDICTS[case.kind][0]))
    other = Clerk(lambda case: VERDICTS[case.kind][-1], name="other")
    with pytest.raises(JudgingRefusedError, match=r"verdicts of clerk/answer.*--replace"):
        judge_run(folder, other)
    assert other.asked == []
    old = (folder / JUDGEMENTS).read_bytes()
    judge_run(folder, other, replace=True)
    assert Judgements.load(folder / JUDGEMENTS).judges == ["other/answer", "other/repair", "other/side_talk"]
    assert (folder / REPLACED).read_bytes() == old


def test_a_full_disk_takes_the_torn_line_back_and_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch):
    write = os.write

    class Full:
        """As much of ``os`` as the log uses, with room for half a line."""

        O_RDWR, O_CREAT, O_APPEND = os.O_RDWR, os.O_CREAT, os.O_APPEND
        open, close, fsync, fstat, ftruncate = os.open, os.close, os.fsync, os.fstat, os.ftruncate

        @staticmethod
        def write(file: int, data: bytes) -> int:
            return write(file, data[: len(data) // 2])

    monkeypatch.setattr(durable_lines, "os", Full)
    with pytest.raises(JudgementsError, match="free some space"):
        judge_run(folder, Clerk(lambda case: VERDICTS[case.kind][0]))
    assert (folder / JUDGEMENTS).read_bytes() == b""


def test_a_run_is_judged_by_one_at_a_time(folder: Path):
    inner: list[BaseException] = []

    def says(case: Case) -> str:
        try:
            judge_run(folder, Clerk())
        except JudgingRefusedError as error:
            inner.append(error)
        return VERDICTS[case.kind][0]

    judge_run(folder, Clerk(says))
    assert len(inner) == 4
    assert len(Judgements.load(folder / JUDGEMENTS)) == 4


# The command --------------------------------------------------------------------------------------------------------


def bench(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_the_command_judges_a_run_that_needs_no_model_and_says_what_is_next(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    out = run_folder(tmp_path / "run", [one for one in eight_trials() if one.trial.id in ("repair", "wide", "exact")])
    write_json(out / "config.json", config)
    assert bench("judge", out) == ExitCode.OK
    said = capsys.readouterr().out
    assert "repair: 1 explicit_repair, 1 other" in said
    assert f"voicegate bench score {out}" in said
    assert all(line["judge"].startswith("offline-v") for line in lines_of(out))


def test_what_lacks_the_words_it_is_about_is_not_judged_and_the_command_fails(
    tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    out = run_folder(
        tmp_path / "run", [played("bare", "side_talk", "assistant_first", "answer", "answer", said="Yes.")]
    )
    write_json(out / "config.json", config)
    assert bench("judge", out) == ExitCode.FAILED
    assert "not judged, 1: the manifest has not both utterances" in capsys.readouterr().out
    assert lines_of(out) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name the folder"),
        (["{out}", "--agreement"], "name the folder"),
        (["{out}", "--judge", "llm", "--base-url", "ftp://x"], "no http"),
        (["{out}", "--judge", "llm", "--base-url", "https://me:secret@host/v1"], "OPENAI_API_KEY"),
        (["{out}/absent"], "config.json"),
    ],
)
def test_what_can_be_mended_is_one_line_and_never_shows_a_password(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
):
    assert bench("judge", *(argument.format(out=folder) for argument in arguments)) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert says in said
    assert "secret" not in said
    assert "Traceback" not in said


def test_progress_counts_what_was_done_before_and_what_failed(capsys: pytest.CaptureFixture[str]):
    with StepProgress("responses", 10, 4) as progress:
        progress.add()
        progress.add(bad=True)
        assert progress.line().startswith("6/10 responses, 0:00 so far, 0:00 left")
        assert progress.line().endswith("1 failed")
    assert capsys.readouterr().out == ""


def test_several_answers_of_one_trial_are_judged_together():
    one = played(
        "side", "side_talk", "assistant_first", "answer", "answer", said="February.\nI will mind the cup.",
        segments=(ASSISTANT, BYSTANDER),
        decisions=[decision("answer", answer="February."), decision("answer", answer="x")],
    )  # fmt: skip
    assert [case.response for case in waiting([one])] == ["February.\nI will mind the cup."]
