"""Back ends: the stub records and does nothing; a tool's own effect runs where it cannot stop the gate from hearing."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from pathlib import Path
from typing import Annotated

import pytest

from gate.catalogue import Risk
from tests.support_tools import good_call, until
from tools.arguments import ThingName
from tools.backend import OwnBackend, StubBackend, StubEffect
from tools.catalogue import ToolCatalogue
from tools.spec import Ask, ToolSpec

ORDER = ToolCatalogue.builtin().parse(good_call("place_order", item="Käse"))


class Sounder(ToolSpec, name="sound", description="Sound.", risk=Risk.LOW):
    what: Annotated[ThingName, Ask("What?", "what")]

    async def perform(self, *, key: str) -> str:
        return f"{self.what} for {key}, main thread {threading.current_thread() is threading.main_thread()}"


class Blocking(Sounder, name="blocking", description="Block.", risk=Risk.LOW):
    def perform(self, *, key: str) -> str:  # type: ignore[override]
        match self.what:
            case "stop":
                raise StopIteration("over")
            case "exit":
                raise SystemExit(3)
            case "raise":
                raise OSError("no route")
        return f"{self.what} for {key}, main thread {threading.current_thread() is threading.main_thread()}"


async def test_the_stub_records_what_a_real_back_end_would_have_done() -> None:
    stub = StubBackend()
    assert await stub.perform(ORDER, key="k1") == "recorded only: Order Käse, quantity 2"
    assert stub.effects == (StubEffect("k1", "place_order", {"item": "Käse", "quantity": 2}, "Order Käse, quantity 2"),)


async def test_the_stub_appends_whole_json_lines_that_only_the_owner_reads(tmp_path: Path) -> None:
    log = tmp_path / "effects.jsonl"
    for key in ("k1", "k2"):
        await StubBackend(log=log).perform(ORDER, key=key)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["key"] for line in lines] == ["k1", "k2"]
    assert lines[0] == {
        "key": "k1",
        "tool": "place_order",
        "params": {"item": "Käse", "quantity": 2},
        "summary": "Order Käse, quantity 2",
    }
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_a_stub_can_be_broken_before_or_after_its_effect() -> None:
    async def broken(tool: ToolSpec) -> None:
        raise OSError(f"{tool.facts.name} is unplugged")

    for stub, landed in ((StubBackend(before=broken), 0), (StubBackend(after=broken), 1)):
        with pytest.raises(OSError, match="place_order is unplugged"):
            await stub.perform(ORDER, key="k1")
        assert len(stub.effects) == landed


async def test_a_stub_whose_log_cannot_be_written_has_no_effect(tmp_path: Path) -> None:
    stub = StubBackend(log=tmp_path / "missing" / "effects.jsonl")
    with pytest.raises(FileNotFoundError):
        await stub.perform(ORDER, key="k1")
    assert stub.effects == ()


async def test_a_tool_with_an_effect_of_its_own_runs_it_and_others_are_handed_on() -> None:
    stub = StubBackend()
    own = OwnBackend(stub)
    assert await own.perform(Sounder(what="horn"), key="k1") == "horn for k1, main thread True"
    assert not stub.effects
    await own.perform(ORDER, key="k2")
    assert [effect.key for effect in stub.effects] == ["k2"]


async def test_blocking_code_runs_off_the_loop_so_the_gate_goes_on_hearing() -> None:
    own = OwnBackend(StubBackend())
    assert await own.perform(Blocking(what="horn"), key="k1") == "horn for k1, main thread False"


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("raise", OSError, "no route"),
        ("stop", RuntimeError, "StopIteration: over"),
        ("exit", RuntimeError, "SystemExit: 3"),
    ],
)
async def test_whatever_a_blocking_tool_raises_reaches_the_caller(what: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await OwnBackend(StubBackend()).perform(Blocking(what=what), key="k1")


def test_a_blocking_tool_that_outlives_its_caller_or_the_loop_does_no_harm() -> None:
    gate = threading.Event()
    finished: list[threading.Thread] = []

    class Stuck(Sounder, name="stuck", description="Hang.", risk=Risk.LOW):
        def perform(self, *, key: str) -> str:  # type: ignore[override]
            finished.append(threading.current_thread())
            gate.wait(5.0)
            return "late"

    async def give_up(open_the_gate: bool) -> None:
        task = asyncio.create_task(OwnBackend(StubBackend()).perform(Stuck(what="x"), key="k"))
        await until(lambda: bool(finished))
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        if open_the_gate:
            gate.set()
            finished[0].join(5.0)
            await asyncio.sleep(0.005)  # the late result is delivered to nobody

    asyncio.run(give_up(open_the_gate=True))
    finished.clear()
    gate.clear()
    asyncio.run(give_up(open_the_gate=False))
    gate.set()
    finished[0].join(5.0)
    assert not finished[0].is_alive()
    assert finished[0].daemon
