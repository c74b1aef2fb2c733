"""The table of broker faults says what the tests found, and a broken promise is never listed as held."""

from __future__ import annotations

from bench.broker_faults import BrokerOutcome, outcomes

REPORT = """<testsuites><testsuite>
<testcase name="test_a_wrong_password_is_one_line"/>
<testcase name="test_garbage_is_skipped[5]"/>
<testcase name="test_garbage_is_skipped[3.1.1]"><failure message="x">trace</failure></testcase>
<testcase name="test_tls"><skipped message="no mosquitto here"/></testcase>
<testcase name="test_setup_broke"><error message="x"/></testcase>
</testsuite></testsuites>"""


def test_variants_of_a_promise_are_one_row_and_one_broken_variant_breaks_it() -> None:
    assert outcomes(REPORT) == [
        BrokerOutcome("a wrong password is one line", 1, "held"),
        BrokerOutcome("garbage is skipped", 2, "broken"),
        BrokerOutcome("tls", 1, "not played: no mosquitto here"),
        BrokerOutcome("setup broke", 1, "broken"),
    ]
