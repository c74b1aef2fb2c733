"""Summaries and comparisons as tables for people. Programs read the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table

from bench.compare import Comparison
from bench.parity import PACES, Parity

_FLIPPED_SHOWN = 8
_PIPED_COLUMNS = 120


def show(what: RenderableType) -> None:
    """Print it: as wide as the terminal, or as a file's reader can take."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_COLUMNS)
    console.print(what)


def summary_table(summary: Mapping[str, Any]) -> RenderableType:
    """The rates, latencies and counts of a summary; what was not run is left out."""
    rates = Table(Column("", overflow="fold"), "rate", "95 %", "k / n", box=box.SIMPLE_HEAD)
    for name, rate in _rates({key: summary[key] for key in ("vgbench", "gate", "ear")}):
        low, high = rate["ci95"] or (None, None)
        interval = "" if low is None else f"{low:.1%} to {high:.1%}"
        counts = f"{rate['k']} / {rate['n']}" if rate["k"] is not None else f"{rate['n']} queries"
        rates.add_row(name, f"{rate['rate']:.1%}", interval, counts)
    times = Table("seconds", "p50", "p95", "n", box=box.SIMPLE_HEAD)
    for group in ("latency", "compute"):
        for name, found in summary[group].items():
            if found is not None:
                times.add_row(f"{group}.{name}", f"{found['p50']:.3f}", f"{found['p95']:.3f}", str(found["n"]))
    speed = summary["throughput"]
    lines = ["  ".join(f"{name} {count}" for name, count in summary["status"].items() if count)]
    lines += [f"{speed['audio_seconds_per_second']:.2f} s of audio a second"] if speed else []
    lines += list(_equal_errors(summary["operating"]))
    lines += list(_open_questions(summary))
    return Group(rates, times, *lines)


def _rates(value: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every rate that is a figure of its own; breakdowns stay in the JSON."""
    if not isinstance(value, Mapping):
        return
    if {"n", "k", "rate"} <= value.keys():
        yield path, value
        return
    for name, inner in value.items():
        if not str(name).startswith("by_"):
            yield from _rates(inner, f"{path}.{name}" if path else str(name))


def _equal_errors(operating: Mapping[str, Any] | None) -> Iterator[str]:
    for name in ("speaker", "distance", "both") if operating else ():
        point = (operating or {})[name]["equal_error"]
        if point is not None:
            yield f"equal error over the {name} threshold: {point['rate']:.1%} at {point['shift']:+.3f}"


def _open_questions(summary: Mapping[str, Any]) -> Iterator[str]:
    ear = summary["ear"]["not_judged"]
    waiting = {
        "side-talk responses": summary["vgbench"]["side_talk"]["not_judged"],
        "answers": ear["answers"],
        "repairs": ear["repairs"],
    }
    told = [f"{count} {name}" for name, count in waiting.items() if count]
    if told:
        yield f"not judged yet, so the figures that need it are null: {', '.join(told)}"


def comparison_table(found: Comparison) -> RenderableType:
    """What has changed between two runs."""
    table = Table(Column("", overflow="fold"), "n", "first", "second", "flipped", "p", "verdict", box=box.SIMPLE_HEAD)
    flips: list[str] = []
    for change in found.changes:
        verdict = (
            f"[bold]{change.verdict}[/bold]" if change.verdict in ("better", "worse", "changed") else change.verdict
        )
        table.add_row(
            change.name, str(change.n), f"{change.first:.1%}", f"{change.second:.1%}",
            f"-{len(change.only_first)} +{len(change.only_second)}", f"{change.p:.3g}", verdict,
        )  # fmt: skip
        flips += [f"{change.name} {sign} {_listed(ids)}" for sign, ids in _signed(change) if ids]
    lines = [f"{found.common} trials in both, {found.only_first} and {found.only_second} in one only"]
    lines += [f"{key}: {first} | {second}" for key, first, second in found.configuration]
    if found.latency is not None:
        low, high = found.latency["ci95"]
        lines.append(
            f"latency, median difference: {found.latency['median_difference']:+.3f} s ({low:+.3f} to {high:+.3f})"
            + (", noise" if found.latency["noise"] else "")
        )
    return Group(*lines, table, *flips)


def _signed(change: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [("-", change.only_first), ("+", change.only_second)]


def _listed(ids: tuple[str, ...]) -> str:
    rest = len(ids) - _FLIPPED_SHOWN
    return ", ".join(ids[:_FLIPPED_SHOWN]) + (f" and {rest} more (--json lists all)" if rest > 0 else "")


def parity_lines(found: Parity) -> Iterator[str]:
    """How the two clocks compare."""
    for name, told in found.differing.items():
        yield f"{name}: charged {told['charged']}, wall {told['wall']}"
    yield f"{found.trials - len(found.differing)} of {found.trials} trials decided the same on both clocks"
    for pace in PACES:
        median_s = found.median_s[pace.value]
        compute_s = found.compute_s[pace.value] or 0.0
        shown = (
            "no decision" if median_s is None else f"{median_s * 1000:.0f} ms ({compute_s * 1000:.0f} ms of compute)"
        )
        yield f"median from the detected end of speech to the decision, {pace.value}: {shown}"
    if found.latency_apart_s is not None:
        median_s, (low_s, high_s) = found.latency_apart_s
        yield (
            f"decision by decision, wall less charged: {median_s * 1000:+.0f} ms "
            f"(95 %: {low_s * 1000:+.0f} to {high_s * 1000:+.0f})"
        )
    yield "the charged clock holds" if found.holds else "the charged clock does NOT hold"
