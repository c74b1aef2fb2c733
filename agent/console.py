"""The console: a live panel on a terminal, plain lines everywhere else."""

from __future__ import annotations

import math
from collections import deque
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent import events
from agent.events import Event

LAST_DECISIONS = 8
FLOOR_DBFS = -70.0
_STYLE = {"tool": "bold green", "answer": "cyan", "pardon": "yellow", "mute": "dim"}
_VERDICT_STYLE = {"owner": "green", "near": "green", "other": "red", "far": "red", "unsure": "yellow"}
_NAME = {"tool": "TOOL", "answer": "ANSWER", "pardon": "PARDON?", "mute": "mute"}


def call_text(tool: str | None, params: dict[str, object] | None) -> str:
    """A call as a person reads it: ``send_message(recipient='Priya')``."""
    if tool is None:
        return ""
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in (params or {}).items())})"


def decision_line(event: events.Decided) -> str:
    """One decision as one line."""
    span = event.evidence.span_s
    what = {
        "tool": call_text(event.tool, event.params),
        "answer": event.answer or "",
        "pardon": event.answer or "",
        "mute": f"not run: {call_text(event.tool, event.params)}" if event.tool else "",
    }[event.action]
    why = event.sentence if not event.detail else f"{event.sentence} ({event.detail})"
    heard = f'"{event.evidence.transcript}"' if event.evidence.transcript else "(no words)"
    return (
        f"[{span[0]:7.2f}-{span[1]:7.2f} s] {_NAME[event.action]:<8} {what}\n{'':21}heard: {heard}\n{'':21}why: {why}"
    )


class PlainConsole:
    """Events as plain lines, for pipes and files."""

    wants_levels = False

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def emit(self, event: Event) -> None:
        """Print what a person wants to know."""
        line = plain_line(event)
        if line is not None:
            print(line, file=self._out, flush=True)

    async def aclose(self) -> None:
        """Nothing to close: the stream is the caller's."""


def plain_line(event: Event) -> str | None:
    """An event as plain text, or None when it is not for people."""
    match event:
        case events.SessionStarted():
            source = ", ".join(f"{key}: {value}" for key, value in event.source.items() if value not in (None, ""))
            limits = ", ".join(f"{key} {value}" for key, value in event.thresholds.items())
            off = f"\ntools are off: {event.tools_off}" if event.tools_off else ""
            models = ", ".join(event.models)
            return (
                f"listening to {source}\nowner: {_OWNER[event.owner]}\npolicy: {event.policy}; models: {models}\n"
                f"thresholds: {limits}{off}"
            )
        case events.SourceNotice():
            return f"[{event.at_s:7.2f} s] source: {event.message}"
        case events.OutputNotice():
            return f"[{event.at_s:7.2f} s] output: {event.message}"
        case events.SourceLost():
            return f"[{event.at_s:7.2f} s] source: lost {event.lost_samples} samples"
        case events.Decided():
            return f"{decision_line(event)}\n{'':21}{_latency(event)}"
        case events.Executed():
            detail = f" ({event.detail})" if event.detail else ""
            return f"{'':21}executed {call_text(event.tool, event.params)}: {event.outcome}{detail}"
        case events.LateResult():
            return f"[{event.at_s:7.2f} s] late: {event.tool} of turn {event.turn} ended as {event.outcome}"
        case events.ClaimWithoutExecution():
            return f"{'':21}note: that answer claims a deed, but nothing was executed"
        case events.Failed():
            return f"[{event.at_s:7.2f} s] failed: {event.where}: {event.error}"
        case events.SessionEnded():
            counts = ", ".join(f"{kind} {count}" for kind, count in sorted(event.decisions.items())) or "no decisions"
            return f"ended ({event.reason}) after {event.audio_s:.1f} s of audio, {event.turns} turns: {counts}"
        case _:
            return None


_OWNER = {
    "enrolled": "the enrolled wearer",
    "initiator": "whoever speaks first and near (nobody is enrolled; `voicegate enroll` makes it only you)",
}


def _latency(event: events.Decided) -> str:
    compute = ", ".join(f"{stage} {seconds * 1000:.0f}" for stage, seconds in event.timing.compute.items())
    return f"decided {event.timing.latency_s * 1000:.0f} ms after the speech ended (compute in ms: {compute})"


class LiveConsole:
    """A panel that is redrawn in place: level, speech, who, how near, the score that is needed, the last decisions.

    Args:
        console: a rich console on a terminal.
    """

    wants_levels = True

    def __init__(self, console: Console) -> None:
        self._level_dbfs = FLOOR_DBFS
        self._is_speech = False
        self._last: deque[events.Decided] = deque(maxlen=LAST_DECISIONS)
        self._outcomes: dict[str, str] = {}
        self._notes: deque[str] = deque(maxlen=3)
        self._started: events.SessionStarted | None = None
        self._at_s = 0.0
        self._live = Live(self, console=console, refresh_per_second=10, transient=False)
        self._live.start()

    def emit(self, event: Event) -> None:
        """Take one event; the panel is redrawn on its own."""
        self._at_s = max(self._at_s, event.at_s)
        match event:
            case events.Level():
                self._level_dbfs, self._is_speech = event.level_dbfs, event.is_speech
            case events.SessionStarted():
                self._started = event
            case events.Decided():
                self._last.append(event)
            case events.Executed():
                self._outcomes[event.turn] = event.outcome
            case (
                events.SourceNotice()
                | events.SourceLost()
                | events.OutputNotice()
                | events.Failed()
                | events.ClaimWithoutExecution()
            ):
                self._notes.append((plain_line(event) or "").strip())
            case events.SessionEnded():
                self._notes.append(plain_line(event) or "")

    async def aclose(self) -> None:
        """Draw once more and leave the panel on the screen."""
        self._live.stop()

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._meter(), self._evidence(), self._decisions()]
        parts.extend(Text(note, style="yellow") for note in self._notes)
        return Panel(Group(*parts), title="voicegate", subtitle=self._subtitle(), border_style="blue")

    def _subtitle(self) -> str:
        if self._started is None:
            return ""
        off = f" | tools off: {self._started.tools_off}" if self._started.tools_off else ""
        return f"{self._at_s:.1f} s | owner: {self._started.owner} | {self._started.policy}{off}"

    def _meter(self) -> Text:
        share = (max(self._level_dbfs, FLOOR_DBFS) - FLOOR_DBFS) / -FLOOR_DBFS
        style = "green" if self._is_speech else "dim"
        spoken = "speech" if self._is_speech else ""
        level = f" {self._level_dbfs:6.1f} dBFS "
        return Text.assemble(("level    ", "bold"), (_bar(share), style), level, (spoken, style))

    def _evidence(self) -> RenderableType:
        if not self._last:
            return Text("speaker  -\ndistance -", style="dim")
        evidence = self._last[-1].evidence
        speaker, distance = evidence.speaker, evidence.distance
        return Group(
            _score_line("speaker ", speaker.verdict, speaker.score, speaker.owner_at, speaker.note),
            _score_line("distance", distance.verdict, distance.near_probability, distance.near_at, distance.note),
        )

    def _decisions(self) -> Table:
        table = Table(expand=True, show_edge=False, pad_edge=False)
        table.add_column("at", width=8, justify="right")
        table.add_column("action", width=8)
        table.add_column("what, and why", ratio=1)
        for event in self._last:
            lines = [f'"{event.evidence.transcript}"' if event.evidence.transcript else "(no words)"]
            if event.tool:
                outcome = self._outcomes.get(event.turn, "") if event.action == "tool" else "not run"
                lines.append(f"{call_text(event.tool, event.params)} {outcome}".rstrip())
            if event.answer:
                lines.append(event.answer)
            lines.append(event.sentence + (f" ({event.detail})" if event.detail else ""))
            style = _STYLE[event.action]
            table.add_row(f"{event.evidence.span_s[1]:.1f} s", Text(_NAME[event.action], style=style), "\n".join(lines))
        return table


def _bar(share: float, width: int = 30, mark: float | None = None) -> str:
    share = 0.0 if math.isnan(share) else min(1.0, max(0.0, share))
    cells = ["█" if index < round(share * width) else "·" for index in range(width)]
    if mark is not None and 0.0 <= mark <= 1.0:
        cells[min(width - 1, round(mark * width))] = "│"
    return "".join(cells)


def _score_line(name: str, verdict: str, score: float | None, needed: float, note: str) -> Text:
    style = _VERDICT_STYLE[verdict]
    shown = "   -" if score is None else f"{score:4.2f}"
    return Text.assemble(
        (f"{name} ", "bold"),
        (_bar(score or 0.0, mark=needed), style),
        f" {shown} needs {needed:4.2f} ",
        (verdict, style),
        (f"  {note}" if note else "", "dim"),
    )
