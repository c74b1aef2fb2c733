"""``voicegate policies``: what can propose actions, what each needs, whether it can start here, and how it fared.

Nothing is loaded, and nobody is asked over the network; of a key only whether it is set is said.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.bench_rows import RATES, BenchRow, RowsUnreadableError, last_row, read_rows, rows_file
from agent.exit_codes import ExitCode
from models.components import POLICIES
from models.policy_needs import NEEDS, PolicyNeeds
from models.policy_ready import Readiness, Shelf, key_states, readiness
from models.store import Store

_MARKS = {True: "ready", False: "not ready", None: "not known"}
_WIDTH_COLUMNS = 118
_INDENT = " " * 12


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """What is known of a policy here.

    Attributes:
        name: in the registry.
        needs: what it is, needs and takes.
        keys: which variables that may hold its key are set.
        readiness: whether it can start.
        last: its last bench row on this machine, or None.
    """

    name: str
    needs: PolicyNeeds
    keys: Mapping[str, bool]
    readiness: Readiness
    last: BenchRow | None

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it; null is unknown, or nothing."""
        needs = self.needs
        return {
            "name": self.name,
            "what": needs.what,
            "runs": needs.runs.value,
            "memory_gb": needs.memory_gb,
            "hardware": needs.hardware or None,
            "models": list(needs.models),
            "checkpoint": needs.checkpoint or None,
            "keys": dict(self.keys),
            "needs_key": needs.needs_key,
            "server": needs.server or None,
            "python": needs.python or None,
            "extra": needs.extra or None,
            "options": list(needs.options),
            "required_options": list(needs.required),
            "page": f"docs/{needs.page}",
            "ready": self.readiness.ready,
            "ready_text": self.readiness.text,
            "last_run": None if self.last is None else self.last.model_dump(mode="json"),
        }

    def lines(self) -> Iterator[str]:
        """As it is printed for people."""
        yield f"{self.name}: {self.needs.what} ({_MARKS[self.readiness.ready]})"
        yield from _told("needs", "; ".join(self._needs()))
        yield from _told("here", self.readiness.text)
        yield from _told("last run", "none on this machine" if self.last is None else shown(self.last))
        yield from _told("options", ", ".join(map(self._option, self.needs.options)) or "none")
        yield from _told("see", f"docs/{self.needs.page}")

    def _needs(self) -> Iterator[str]:
        needs = self.needs
        memory = "memory not known" if needs.memory_gb is None else f"{needs.memory_gb:g} GB of memory"
        yield f"runs {needs.runs.value}, {memory}"
        if needs.hardware:
            yield needs.hardware
        if needs.models:
            yield f"models {', '.join(needs.models)}"
        if needs.checkpoint:
            yield f"checkpoint {needs.checkpoint}"
        if needs.keys:
            states = " or ".join(f"{name} ({'set' if is_set else 'not set'})" for name, is_set in self.keys.items())
            yield f"key in {states}" + ("" if needs.needs_key else ", if the server wants one")
        if needs.server:
            yield f"server {needs.server}"
        if needs.python:
            yield f"the Python that {needs.python} names"
        if needs.extra:
            yield needs.extra

    def _option(self, option: str) -> str:
        return f"{option} (needed)" if option in self.needs.required else option


def facts(store: Shelf, environ: Mapping[str, str], rows: Mapping[str, BenchRow]) -> list[PolicyFacts]:
    """What is known of every policy of the registry, in its order.

    Args:
        store: where models are.
        environ: where keys are.
        rows: the last bench rows.
    """
    return [
        PolicyFacts(
            name, NEEDS[name], key_states(NEEDS[name], environ), readiness(name, NEEDS[name], store, environ),
            last_row(rows, name),
        )
        for name in POLICIES
    ]  # fmt: skip


def shown(row: BenchRow) -> str:
    """A bench row in a line."""
    rates = [f"{name} {_share(row, key)}" for key, name in RATES.items()]
    named = f"as {row.policy}, " if ":" in row.policy else ""
    failed = f" ({row.failed} failed)" if row.failed else ""
    return f"{row.date[:10]}, {named}{row.trials} trials of {row.manifest}{failed}: {', '.join(rates)}; {row.folder}"


def run(*, as_json: bool) -> ExitCode:
    """Print them.

    Returns:
        ``OK``; what cannot be known is said, and is no failure.
    """
    try:
        rows, unreadable = read_rows(rows_file()), ""
    except RowsUnreadableError as error:
        rows, unreadable = {}, str(error)
    found = facts(Store(), os.environ, rows)
    if as_json:
        print(json.dumps({"policies": [one.as_json() for one in found], "rows_fault": unreadable or None}, indent=2))
        return ExitCode.OK
    for one in found:
        print("\n".join(one.lines()), end="\n\n")
    print("choose with --policy NAME or --policy NAME:option=value,option=value")
    if unreadable:
        print(f"last runs are not known: {unreadable}")
    return ExitCode.OK


def _share(row: BenchRow, key: str) -> str:
    share = row.rates.get(key)
    return "not known" if share is None else f"{share.rate:.0%} of {share.n}"


def _told(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH_COLUMNS, initial_indent=f"  {label:<10}", subsequent_indent=_INDENT, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
