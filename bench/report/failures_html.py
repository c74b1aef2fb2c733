"""The list of failures as HTML: each trial with its labels, its recording, and what each run knew and did."""

from __future__ import annotations

from collections.abc import Iterable

from bench.report import series
from bench.report.evidence import Fact
from bench.report.failures import FailedIn, FailedTrial, FailureGroup, Failures, what_was_right
from bench.report.players import Player
from bench.report.svg import text_of
from bench.report.wording import count_of
from bench.trials import Trial

_OPEN_UP_TO = 12
"""Longer lists start folded."""


def failures_html(failures: Failures) -> str:
    """All of it; a sentence where nothing failed."""
    if not failures.groups:
        return "<p>No trial went wrong.</p>"
    return "".join(_group(group, failures.titles) for group in failures.groups)


def _group(group: FailureGroup, titles: tuple[str, ...]) -> str:
    kind = group.kind
    counts = ", ".join(f"{titles[run]}: {group.count(run)}" for run in range(len(titles)) if group.count(run))
    is_open = " open" if kind.dangerous and len(group.trials) <= _OPEN_UP_TO else ""
    return (
        f'<details class="kind{" dangerous" if kind.dangerous else ""}" id="failures-{kind.name}"{is_open}>'
        f"<summary><h3>{text_of(kind.title)}</h3> "
        f"<span>{count_of(len(group.trials), 'trial')} ({text_of(counts)})</span></summary>"
        f"<p>{text_of(kind.harm)}</p>"
        f"{''.join(_trial(failed, titles) for failed in group.trials)}</details>"
    )


def _trial(failed: FailedTrial, titles: tuple[str, ...]) -> str:
    trial = failed.trial
    target = trial.target_segment()
    said = trial.text if trial.text is not None else target.text if target is not None else ""
    done = "; ".join(f"{titles[one.run].split()[0]} {one.done}" for one in failed.runs)
    head = (
        f'<summary><code>{text_of(trial.id)}</code> <span class="where">{text_of(trial.family)}, '
        f"{text_of(trial.condition)}</span> {_quoted(said)} "
        f'<span class="done">right: {text_of(what_was_right(trial))}; {text_of(done)}</span></summary>'
    )
    parts = [head, _player(failed.player, trial), _labels(trial)]
    parts += [_run(one, titles) for one in failed.runs]
    if failed.others:
        others = "; ".join(f"{titles[run]} {done}{f' ({kind})' if kind else ''}" for run, done, kind in failed.others)
        parts.append(f'<p class="others">The other runs: {text_of(others)}.</p>')
    return f'<details class="trial">{"".join(parts)}</details>'


def _player(player: Player, trial: Trial) -> str:
    if player.source is None:
        return f'<p class="absent">{text_of(player.why_not)}</p>'
    length = "" if player.seconds is None else f' <span class="where">{player.seconds:.1f} s</span>'
    return (
        f'<p><audio controls preload="none" aria-label="Recording of {text_of(trial.id)}" '
        f'src="{text_of(player.source)}"></audio>{length}</p>'
    )


def _labels(trial: Trial) -> str:
    told = []
    if trial.question is not None:
        told.append(("Question", trial.question))
    if trial.text is not None:
        told.append(("Typed", trial.text))
    right = [what_was_right(trial)]
    if trial.expected.answer:
        right.append(f"accepted: {' / '.join(trial.expected.answer)}")
    if trial.target_tool is not None and trial.expected.tool is None:
        right.append(f"the words name {trial.target_tool}")
    told.append(("Right", "; ".join(right)))
    table = ""
    if trial.segments:
        rows = "".join(
            f'<tr><th scope="row">{segment.start:.2f} to {segment.end:.2f} s</th><td>{text_of(segment.speaker)}</td>'
            f"<td>{text_of(segment.distance)}</td><td>{text_of(segment.role)}</td><td>{_quoted(segment.text)}</td></tr>"
            for segment in trial.segments
        )
        heads = "".join(f'<th scope="col">{head}</th>' for head in ("When", "Speaker", "Distance", "Role", "Words"))
        name = f"Labelled speech of {trial.id}"
        table = scrolled(
            f'<table class="labels"><caption><span>{text_of(name)}</span></caption><thead><tr>{heads}</tr></thead>'
            f"<tbody>{rows}</tbody></table>",
            name,
        )
    return _facts(told) + table


def scrolled(table: str, name: str) -> str:
    """A table in a box that scrolls sideways where the screen is narrow, also by keyboard."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{text_of(name)}">{table}</div>'


def _run(one: FailedIn, titles: tuple[str, ...]) -> str:
    facts: list[Fact] = list(one.evidence.facts)
    if one.verdicts:
        facts.append(("Judge", ", ".join(f"{kind}: {verdict}" for kind, verdict in one.verdicts)))
    if one.weighs_on:
        facts.append(("Counted in", ", ".join(one.weighs_on)))
    decisions = "".join(
        f"<h5>Decision {text_of(decision.title)}</h5>{_facts(decision.facts)}" for decision in one.evidence.decisions
    )
    return (
        f'<div class="run"><h4>{series.swatch(one.run)} {text_of(titles[one.run])}: {text_of(one.done)}</h4>'
        f"{_facts(facts)}{decisions or '<p>Nothing was decided.</p>'}</div>"
    )


def _facts(facts: Iterable[Fact]) -> str:
    told = "".join(f"<dt>{text_of(name)}</dt><dd><bdi>{text_of(value)}</bdi></dd>" for name, value in facts)
    return f"<dl>{told}</dl>"


def _quoted(text: str) -> str:
    return f"<q><bdi>{text_of(text)}</bdi></q>" if text else ""
