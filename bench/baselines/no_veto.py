"""The gate without its veto over the source: the policy decides whose words count, and how near.

Everything else stays: the policy still reads the ears' verdicts, arguments must still have been heard, damage is still
asked about. The product has no switch for this, and gets none: the decision is wrapped from here, around each session,
inside the benchmark's own process. What the ears measured stays in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from agent import turn_work
from bench.contestants import Contestant, Setup
from gate.catalogue import Catalogue
from gate.decision import Decision, Proposal, SessionFacts
from gate.decision import decide as real
from gate.evidence import DistanceVerdict, Evidence, ProximityEvidence, SpeakerEvidence, SpeakerVerdict
from gate.thresholds import Thresholds

NOTE = "the veto is lifted"


def as_if_owner_near(evidence: Evidence) -> Evidence:
    """The evidence as it would be if the owner had surely spoken, near by."""
    speaker = SpeakerEvidence(SpeakerVerdict.OWNER, 1.0, 0.0, -1.0, evidence.span, NOTE)
    proximity = ProximityEvidence(DistanceVerdict.NEAR, 1.0, 0.0, 0.0, evidence.span, NOTE)
    return replace(evidence, speaker=speaker, proximity=proximity)


@contextmanager
def veto_lifted() -> Iterator[None]:
    """While it lasts, sessions in this process decide as if every speaker were the owner, near by."""

    def decide(
        proposal: Proposal, evidence: Evidence, session: SessionFacts, thresholds: Thresholds, catalogue: Catalogue
    ) -> Decision:
        facts = replace(session, has_owner=True)
        return replace(real(proposal, as_if_owner_near(evidence), facts, thresholds, catalogue), evidence=evidence)

    with mock.patch.object(turn_work, "decide", decide):
        yield


def load(setup: Setup) -> Contestant:
    """Load the product's ears and policy, with sessions under ``veto_lifted``."""
    return Contestant(setup.parts(), setup.catalogue, around=veto_lifted)
