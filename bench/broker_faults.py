"""What comes of a broker's faults: the outcomes of the tests that play them against a real mosquitto.

These faults need a broker, certificates and broken peers, which the tests have; playing them twice over would be two
truths. So this runs those tests and lists what each one holds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/test_agent_output_mqtt_broker.py"


@dataclass(frozen=True, slots=True)
class BrokerOutcome:
    """One promise.

    Attributes:
        promise: what is held, in words.
        variants: under how many settings (protocol 5 and 3.1.1, plain and TLS) it was played.
        result: ``held``, ``broken`` or ``not played: <why>``.
    """

    promise: str
    variants: int
    result: str


def play_broker_faults() -> list[BrokerOutcome]:
    """Run the tests.

    Returns:
        One outcome a promise, in the tests' order.

    Raises:
        RuntimeError: when they cannot be run at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", TESTS],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        if not report.exists():
            raise RuntimeError(f"{TESTS} cannot be run: {(ran.stdout + ran.stderr)[-1000:]}")
        return outcomes(report.read_text(encoding="utf-8"))


def outcomes(junit_xml: str) -> list[BrokerOutcome]:
    """The outcomes in a JUnit report, variants of one promise together: broken if one of them is."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.fromstring(junit_xml).iter("testcase"):
        name = case.get("name", "").partition("[")[0].removeprefix("test_").replace("_", " ")
        found.setdefault(name, []).append(_result(case))
    out = []
    for name, results in found.items():
        worst = "broken" if "broken" in results else next((r for r in results if r != "held"), "held")
        out.append(BrokerOutcome(name, len(results), worst))
    return out


def _result(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "broken"
    skipped = case.find("skipped")
    return "held" if skipped is None else f"not played: {skipped.get('message', '')}"
