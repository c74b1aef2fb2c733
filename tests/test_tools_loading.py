"""Tools from the user's own files: one file is enough, and a file that is not right is refused by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gate.catalogue import Risk, ToolCall
from tools.catalogue import ToolCatalogue
from tools.loading import ToolLoadError, load_user_tools

GARAGE = '''
"""Opens the garage."""

from __future__ import annotations

from typing import Annotated, Literal

from gate.catalogue import Risk
from tools.arguments import ContactName
from tools.spec import Ask, ToolSpec


class OpenGarage(ToolSpec, name="open_garage", description="Open the garage.", risk=Risk.HIGH):
    side: Annotated[Literal["left", "right"], Ask("Which side?", "the side to open")]

    async def perform(self, *, key: str) -> str:
        return f"opened {self.side}"


Alias = OpenGarage
'''


@pytest.fixture(autouse=True)
def private_files() -> object:
    """Files as an ordinary umask makes them, whatever the one of the test run."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_user_adds_a_tool_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "garage.py").write_text(GARAGE)
    (tmp_path / "_draft.py").write_text("raise RuntimeError")
    (tmp_path / "notes.txt").write_text("not Python")
    catalogue = ToolCatalogue.builtin(load_user_tools(tmp_path))
    facts = catalogue.find("open_garage")
    assert facts is not None
    assert facts.risk is Risk.HIGH
    assert catalogue.check(ToolCall("open_garage", {"side": "left"})) == ()
    assert len(catalogue.check(ToolCall("open_garage", {"side": "middle"}))) == 1
    assert [tool.name for tool in catalogue.all()][-1] == "open_garage"


def test_files_load_in_the_order_of_their_names_also_with_equal_names(tmp_path: Path) -> None:
    for folder, tool in (("one", "tool_b"), ("two", "tool_a")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(GARAGE.replace("open_garage", tool))
    (tmp_path / "one" / "earlier.py").write_text(GARAGE.replace("open_garage", "tool_c"))
    names = [tool.facts.name for folder in ("one", "two") for tool in load_user_tools(tmp_path / folder)]
    assert names == ["tool_c", "tool_b", "tool_a"]
    assert [tool.facts.name for tool in load_user_tools(tmp_path / "two" / "mine.py")] == ["tool_a"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1", "defines no tool"),
        ("from tools.builtin import SendMessage", "defines no tool"),
        ("def broken(:", "SyntaxError"),
        ("import no_such_module_here", "ModuleNotFoundError"),
        (GARAGE.replace("open_garage", "Open Garage"), "lower-case ASCII"),
        (GARAGE.replace('Ask("Which side?", "the side to open")', "1"), "needs one Ask"),
    ],
)
def test_a_file_that_is_no_tool_is_refused_by_name_and_leaves_nothing_behind(
    tmp_path: Path, source: str, reason: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source)
    with pytest.raises(ToolLoadError, match=reason) as caught:
        load_user_tools(tmp_path)
    assert str(file) in str(caught.value)
    assert not any(str(file) == str(getattr(module, "__file__", "")) for module in list(sys.modules.values()))


def test_a_path_that_holds_nothing_is_an_error_not_an_empty_set_of_tools(tmp_path: Path) -> None:
    with pytest.raises(ToolLoadError, match="no such file or directory"):
        load_user_tools(tmp_path / "missing")
    with pytest.raises(ToolLoadError, match=r"holds no \*\.py"):
        load_user_tools(tmp_path)
    (tmp_path / "tool.txt").write_text(GARAGE)
    with pytest.raises(ToolLoadError, match="is no Python source file"):
        load_user_tools(tmp_path / "tool.txt")


def test_code_that_anyone_may_write_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise RuntimeError('it ran')")
    file.chmod(0o666)
    with pytest.raises(ToolLoadError, match="anyone may write to it"):
        load_user_tools(file)
    file.chmod(0o644)
    tmp_path.chmod(0o777)
    with pytest.raises(ToolLoadError, match="anyone may write to it"):
        load_user_tools(tmp_path)
    tmp_path.chmod(0o755)
    with pytest.raises(ToolLoadError, match="it ran"):
        load_user_tools(tmp_path)
