"""What is done about one turn, from samples to effect, as a generator that a worker drives (see ``agent.requests``).

Ears first, then the policy, both already at the first pause; then the wait until the turn is final; then the decision
and its effects. A failing stage never stops the loop: its evidence is unknown, and the unknown executes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from agent import events
from agent.eventlog import EventLog
from agent.frames import Samples
from agent.hearing import Ears, Segment, command_span, segments_of
from agent.listening import Listened, SoFar
from agent.own_voice import OwnVoice, OwnVoiceVerdict, TurnEcho
from agent.records import decided_fields
from agent.requests import Advise, Compute, Computed, Confirm, Launch
from agent.session import OwnerMode, OwnerReference, SessionState, judge_speaker
from agent.worker import Work
from gate import confirm
from gate.actions import ActionKind, ToolAction
from gate.catalogue import Catalogue, Risk, ToolCall
from gate.claims import claims_execution
from gate.confirm import ConfirmSettings, OpenQuestion
from gate.decision import Decision, Proposal, SessionFacts, decide
from gate.evidence import (
    DistanceVerdict,
    Evidence,
    Modality,
    ProximityEvidence,
    SpeakerEvidence,
    SpeakerVerdict,
    Word,
)
from gate.grammar import parse
from gate.grants import Grant
from gate.reasons import Reason
from gate.repair import RepairSettings, RepairState, after_decision, call_off, expire, merge
from gate.replies import is_from_owner, is_refusal
from gate.span import SAMPLE_RATE_HZ, Span
from gate.thresholds import Thresholds
from models.protocols import (
    Embedding,
    Heard,
    HeardSegment,
    Listening,
    Nearness,
    Policy,
    PolicyInput,
    PolicyOutput,
    ProximityTrack,
    SpeakerThresholds,
    SpeakerTrack,
    SpeechSoFar,
)

T = TypeVar("T")

REFERENCE_BEFORE_COMMAND_SAMPLES = SAMPLE_RATE_HZ
"""With at least this much of the initiator's speech before her command, the command is compared with it."""


WITHDRAWAL_SAMPLES = 15 * SAMPLE_RATE_HZ
"""How long after a command a bare "cancel that" is taken to mean it."""

OVERLAP_AROUND_SAMPLES = SAMPLE_RATE_HZ
"""How much around a command the overlap ear hears with it: a voice is told by what it says before and after."""

GRACE_EXTENSION_S = 4.0
"""How much longer a call waits while somebody is speaking when its grace ends."""


class DistanceThresholds(Protocol):
    """When a near probability is near, and when far."""

    @property
    def near_at(self) -> float: ...

    @property
    def far_below(self) -> float: ...


class Execution(Protocol):
    """How a call ended, as the executor reports it."""

    @property
    def state(self) -> str: ...

    @property
    def detail(self) -> str: ...

    @property
    def summary(self) -> str: ...


class Execute(Protocol):
    """The one choke point for effects (``tools.executor``)."""

    async def __call__(self, call: ToolCall, grant: Grant, *, now_sample: int) -> Execution:
        """Run a call on a grant."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a stage may take before it counts as failed, in seconds."""

    ear_s: float = 5.0
    policy_s: float = 8.0


@dataclass(slots=True)
class Grace:
    """A licensed call that waits before it is executed, so that the owner can take it back.

    Attributes:
        turn_id: the turn that licensed it.
        call: the call.
        span: the samples that licensed it.
        started: whether it has started; then it can no longer be withdrawn.
        withdrawn: whether the owner took it back.
    """

    turn_id: str
    call: ToolCall
    span: Span
    started: bool = False
    withdrawn: bool = False


@dataclass(slots=True)
class SessionBox:
    """The session's current state; only committed turns change it."""

    state: SessionState = field(default_factory=SessionState)
    last_end_sample: int | None = None
    heard: list[tuple[HeardSegment, Evidence]] = field(default_factory=list)
    """Every segment, kept only while a question about the whole recording is open."""
    sounds: list[tuple[Span, Samples]] = field(default_factory=list)
    """The turns' samples, kept as long."""
    decisions: dict[str, int] = field(default_factory=dict)
    confirmation: OpenQuestion | None = None
    """The call that waits for the owner's "yes"."""
    graces: list[Grace] = field(default_factory=list)
    """Calls that the owner can still take back, and the last ones that she no longer can."""
    undecided: set[str] = field(default_factory=set)
    """Turns that were opened and are not decided yet."""
    listened: dict[str, Listened] = field(default_factory=dict)
    """What the policy noted of those turns, where it listens."""

    def forget(self, turn_id: str) -> None:
        """The turn is decided or dropped: nothing more is done for it, and its notes are gone."""
        self.undecided.discard(turn_id)
        self.listened.pop(turn_id, None)


@dataclass(frozen=True, slots=True)
class TurnAudio:
    """One turn's samples.

    Attributes:
        turn_id: its id.
        span: in the stream.
        samples: float32 ``(span.samples,)``.
        speech_end_sample: where speech ended.
        source_gap: whether samples were lost inside.
        decided_sample: the stream position at which this form of the turn was known.
        listened: what a listening policy noted of it.
    """

    turn_id: str
    span: Span
    samples: Samples
    speech_end_sample: int
    source_gap: bool
    decided_sample: int
    listened: Listened = field(default_factory=Listened)


@dataclass(frozen=True, slots=True)
class _Tracks:
    speaker: SpeakerTrack | None
    proximity: ProximityTrack | None


@dataclass(slots=True)
class _Timer:
    compute_s: dict[str, float] = field(default_factory=dict)

    def add(self, stage: str, done: Computed) -> None:
        self.compute_s[stage] = self.compute_s.get(stage, 0.0) + done.end_s - done.start_s


@dataclass(frozen=True, slots=True)
class _Ready:
    """A segment with its evidence and proposal, waiting for the turn to be final."""

    segment: HeardSegment
    evidence: Evidence
    proposal: Proposal
    output: PolicyOutput | None


@dataclass(frozen=True, slots=True)
class TurnWork:
    """Makes the work of turns. One a session; everything it needs is injected.

    Attributes:
        ears: what the session hears with.
        policy: proposes.
        catalogue: the tools.
        execute: the choke point, or None where tools cannot run at all.
        speaker_thresholds: the speaker ear's calibration.
        distance_thresholds: the proximity ear's.
        thresholds: the gate's own.
        repair: limits of a repair.
        owner_mode: whose commands count.
        box: the session's state.
        log: where events go.
        position: the stream's position in samples, now.
        question: a question about the recording, asked as text beside it, or None.
        tools_off: says why tools are off at that moment, or the empty string.
        limits: time limits of stages.
        confirmations: which calls are confirmed before they are executed.
        grace_s: by risk, how long a licensed call waits so that the owner can take it back; 0 where not named.
        own_voice: tells which words of a turn are the gate's own; None where it makes no sound.
        on_source: told who speaks, already at the first pause: the owner interrupts the gate's own voice.
        dialects: whether a policy's normalised text is read in the place of the text as written.
    """

    ears: Ears
    policy: Policy
    catalogue: Catalogue
    execute: Execute | None
    speaker_thresholds: SpeakerThresholds
    distance_thresholds: DistanceThresholds
    thresholds: Thresholds
    repair: RepairSettings
    owner_mode: OwnerMode
    box: SessionBox
    log: EventLog
    position: Callable[[], int]
    question: str | None = None
    tools_off: Callable[[], str] = lambda: ""
    limits: Limits = Limits()
    confirmations: ConfirmSettings = field(default_factory=ConfirmSettings)
    grace_s: Mapping[Risk, float] = field(default_factory=dict)
    own_voice: OwnVoice | None = None
    on_source: Callable[[Evidence, OwnVoiceVerdict], None] = lambda evidence, own: None
    dialects: bool = False

    # A turn of audio ----------------------------------------------------------------------------------------------

    def turn(
        self,
        audio: TurnAudio,
        endpoint_s: Callable[[], float],
        advise: Callable[[Sequence[Proposal]], None] = lambda proposals: None,
    ) -> Work:
        """The work of one turn.

        Args:
            audio: its samples.
            endpoint_s: when the turn was closed, on the session's clock; asked for once it is final.
            advise: told what is proposed for the turn's segments as soon as that is known.

        Yields:
            Requests to the worker.
        """
        timer = _Timer()
        audio = replace(audio, listened=self.box.listened.get(audio.turn_id, Listened()))
        if audio.listened.compute_s:
            timer.compute_s["listen"] = audio.listened.compute_s
        silent = yield from self._why_silent(audio, timer)
        if silent:
            yield from self._nothing_said(audio, silent, endpoint_s, timer)
            return
        draft = self.box.state
        heard = yield from self._run("speech", lambda: self.ears.speech.hear(audio.samples), audio, timer)
        echo = yield from self._echo(audio, heard, timer)
        if heard is not None:
            heard = replace(heard, words=echo.kept)
        speaker = yield from self._run("speaker", lambda: self._track_speaker(audio.samples), audio, timer)
        proximity = yield from self._run("proximity", lambda: self.ears.proximity.track(audio.samples), audio, timer)
        damage = yield from self._run("damage", lambda: self.ears.damage.find(audio.samples), audio, timer)
        track, changes = speaker if speaker is not None else (None, ())
        tracks = _Tracks(track, proximity)
        words = () if heard is None else heard.words
        ready: list[_Ready] = []
        segments = segments_of(audio.span, words, changes, damage, self.box.last_end_sample)
        for number, segment in enumerate(segments, 1):
            # A grant is good for one call a turn, so each person's stretch of a split turn is a turn of its own.
            part = audio if len(segments) == 1 else replace(audio, turn_id=f"{audio.turn_id}.{number}")
            own = echo.verdict(segment.span.shifted(-audio.span.start_sample))
            item, draft = yield from self._segment(part, segment, tracks, heard, own, draft, timer)
            ready.append(item)
        yield Advise(lambda: advise([item.proposal for item in ready]))
        decision_s = yield Confirm()
        assert isinstance(decision_s, float), "the worker says when the turn became final"
        self.box.last_end_sample = audio.span.end_sample
        self.box.forget(audio.turn_id)
        repair = self.box.state.repair
        self.box.state = replace(draft, repair=repair)
        if self.question is not None:
            self.box.sounds.append((audio.span, audio.samples))
        for item in ready:
            if self.question is not None:
                self.box.heard.append((item.segment, item.evidence))
                continue
            yield from self._finish(item, _timing(audio, endpoint_s(), decision_s, timer), decision_s)

    def _why_silent(self, audio: TurnAudio, timer: _Timer) -> Generator[Compute, Computed, str]:
        """What shows that nobody speaks in the turn; empty when somebody may, or nothing can tell.

        A question about a recording is about its noises as well: nothing is left out of that.
        """
        ear = self.ears.presence
        if ear is None or self.question is not None:
            return ""
        found = yield from self._run("presence", lambda: ear.check(audio.samples), audio, timer)
        return found.note if found is not None and found.absent else ""

    def _nothing_said(self, audio: TurnAudio, why: str, endpoint_s: Callable[[], float], timer: _Timer) -> Work:
        """The end of a turn in which nobody spoke. It leaves the session as it was: no noise becomes its owner."""
        decision_s = yield Confirm()
        assert isinstance(decision_s, float), "the worker says when the turn became final"
        self.box.last_end_sample = audio.span.end_sample
        self.box.forget(audio.turn_id)
        proximity, speaker, _ = self._unknown_source(audio.span, self.box.state, "nobody spoke")
        evidence = Evidence(audio.turn_id, audio.span, (), speaker, proximity, None, source_gap=audio.source_gap)
        segment = HeardSegment((), speaker.verdict, proximity.verdict)
        item = _Ready(segment, evidence, Proposal(None, failure=Reason.NO_SPEECH, detail=why), None)
        yield from self._finish(item, _timing(audio, endpoint_s(), decision_s, timer), decision_s)

    def _segment(
        self,
        audio: TurnAudio,
        segment: Segment,
        tracks: _Tracks,
        heard: Heard | None,
        own: OwnVoiceVerdict,
        before: SessionState,
        timer: _Timer,
    ) -> Generator[Compute, Computed, tuple[_Ready, SessionState]]:
        """One person's stretch: who and how near, what the policy makes of it, and the session as it is after it."""
        found = yield from self._run("source", lambda: self._source(audio, tracks, segment.voice, before), audio, timer)
        if found is None:
            found = self._unknown_source(segment.voice, before, "measuring the source failed")
        proximity, speaker, after = found
        if not segment.heard:
            # No word came through: a cough close to the microphone makes nobody the session's owner.
            after = before
        evidence = Evidence(
            audio.turn_id, segment.span, segment.words, speaker, proximity, segment.damage,
            overlapped=True if own.overlapped else None, own_voice=own.own_voice, source_gap=audio.source_gap,
            heard=segment.heard, corrections=segment.corrections,
        )  # fmt: skip
        self.on_source(evidence, own)
        heard_segment = HeardSegment(segment.marked, speaker.verdict, proximity.verdict, segment.gap_before_s)
        if own.own_voice:
            # No context for the policy, and whoever it sounds like becomes nobody's owner.
            ours = Proposal(None, failure=Reason.OWN_VOICE, detail=own.note)
            return _Ready(heard_segment, evidence, ours, None), before
        proposal, output = yield from self._propose(audio, heard_segment, segment, before, heard, timer)
        if isinstance(proposal.parsed, ToolAction):
            call = proposal.parsed.call
            judged = yield from self._run(
                "source",
                lambda: self._judge_corrections(
                    audio, tracks, *self._judge_command(audio, tracks, evidence, call, before, after)
                ),
                audio,
                timer,
            )
            overlapped = yield from self._overlap(audio, evidence, call, timer)
            if judged is None or overlapped is None:
                proposal = Proposal(None, proposal.raw, Reason.EAR_FAILED, "scoring the command failed")
            else:
                evidence, after = judged
                if overlapped:
                    evidence = replace(evidence, overlapped=True)
        return _Ready(heard_segment, evidence, proposal, output), after.with_segment(heard_segment)

    def _run(
        self, stage: str, call: Callable[[], T], audio: TurnAudio, timer: _Timer
    ) -> Generator[Compute, Computed, T | None]:
        """One ear's work: its result, or None after an error, which is logged."""
        done = yield Compute(stage, call, self.limits.ear_s)
        timer.add(stage, done)
        if done.error is not None:
            self.log.emit(
                events.Failed,
                audio.decided_sample,
                clock_s=done.end_s,
                where=f"{stage} of {audio.turn_id}",
                error=_describe(done.error),
            )
            return None
        return cast(T, done.value)

    def _echo(self, audio: TurnAudio, heard: Heard | None, timer: _Timer) -> Generator[Compute, Computed, TurnEcho]:
        """Which of the words are our own playback, heard again."""
        words = () if heard is None else heard.words
        ear = self.own_voice
        if ear is None:
            return TurnEcho.without_playback(words)
        found = yield from self._run("own_voice", lambda: ear.check(audio.span, audio.samples, words), audio, timer)
        return ear.unmeasured(audio.span, words) if found is None else found

    def _track_speaker(self, samples: Samples) -> tuple[SpeakerTrack, tuple[int, ...]]:
        track = self.ears.speaker.track(samples)
        return track, track.changes()

    def _embed(self, audio: TurnAudio, tracks: _Tracks, span: Span) -> Embedding:
        if tracks.speaker is None:
            return Embedding(None, span, "the speaker ear failed")
        return tracks.speaker.embed(span.shifted(-audio.span.start_sample))

    def _near(self, audio: TurnAudio, tracks: _Tracks, span: Span) -> ProximityEvidence:
        if tracks.proximity is None:
            nearness = Nearness(None, span, "the proximity ear failed")
        else:
            nearness = tracks.proximity.near(span.shifted(-audio.span.start_sample))
        return self._proximity_evidence(nearness, span)

    def _proximity_evidence(self, nearness: Nearness, span: Span) -> ProximityEvidence:
        limits = self.distance_thresholds
        probability = nearness.near_probability
        verdict = DistanceVerdict.UNSURE
        if probability is not None and probability >= limits.near_at:
            verdict = DistanceVerdict.NEAR
        elif probability is not None and probability < limits.far_below:
            verdict = DistanceVerdict.FAR
        return ProximityEvidence(verdict, probability, limits.near_at, limits.far_below, span, nearness.note)

    def _source(
        self, audio: TurnAudio, tracks: _Tracks, voice: Span, state: SessionState
    ) -> tuple[ProximityEvidence, SpeakerEvidence, SessionState]:
        proximity = self._near(audio, tracks, voice)
        speaker, after = judge_speaker(
            state, self.owner_mode, self.speaker_thresholds, self._embed(audio, tracks, voice), voice,
            proximity.verdict, self.ears.speaker.model, audio.turn_id,
        )  # fmt: skip
        return proximity, speaker, after

    def _unknown_source(
        self, voice: Span, state: SessionState, note: str
    ) -> tuple[ProximityEvidence, SpeakerEvidence, SessionState]:
        proximity = self._proximity_evidence(Nearness(None, voice, note), voice)
        speaker = SpeakerEvidence(SpeakerVerdict.UNSURE, None, 1.0, -1.0, voice, note)
        return proximity, speaker, state

    def _judge_command(
        self,
        audio: TurnAudio,
        tracks: _Tracks,
        evidence: Evidence,
        call: ToolCall,
        before: SessionState,
        after: SessionState,
    ) -> tuple[Evidence, SessionState]:
        """Score the words that license the call, not the segment that they stand in."""
        span = command_span(call, evidence.words)
        if span is None or span.samples < self.ears.speaker.min_samples:
            return evidence, after
        proximity = self._near(audio, tracks, span)
        # What the segment itself claims says nothing about who spoke the command in it.
        against = after if after.owner is not None else before
        if before.owner is None and after.owner is not None:
            # The segment that made its speaker the owner also holds a command. If someone else spoke the command, and
            # the change of voice went unseen, the reference would hold both voices: compare with what came before it.
            lead = Span(evidence.speaker.span.start_sample, max(evidence.speaker.span.start_sample, span.start_sample))
            embedding = self._embed(audio, tracks, lead)
            if lead.samples < REFERENCE_BEFORE_COMMAND_SAMPLES or embedding.vector is None:
                # The command itself makes its speaker the owner, if it was near.
                return replace(evidence, proximity=proximity), after
            against = replace(
                after,
                owner=OwnerReference(embedding.vector, lead.duration_s, self.ears.speaker.model, audio.turn_id),
            )
        speaker, with_owner = judge_speaker(
            against, self.owner_mode, self.speaker_thresholds, self._embed(audio, tracks, span), span,
            proximity.verdict, self.ears.speaker.model, audio.turn_id,
        )  # fmt: skip
        if before.owner is None and speaker.verdict is SpeakerVerdict.OWNER:
            # Where the segment as a whole was not surely near, the command may be, and then begins the session.
            state = after if after.owner is not None else with_owner
        else:
            state = against if after.owner is not None else after
        return replace(evidence, speaker=speaker, proximity=proximity), state

    def _overlap(
        self, audio: TurnAudio, evidence: Evidence, call: ToolCall, timer: _Timer
    ) -> Generator[Compute, Computed, bool | None]:
        """Whether somebody else speaks into the words that license a call; None when looking for it failed.

        Looked for in commands alone: it costs as much as all other ears together, and no other action rests on it.
        """
        ear = self.ears.overlap
        if ear is None:
            return False
        command = (command_span(call, evidence.words) or evidence.span).shifted(-audio.span.start_sample)
        start = max(0, command.start_sample - OVERLAP_AROUND_SAMPLES)
        window = audio.samples[start : command.end_sample + OVERLAP_AROUND_SAMPLES]
        found = yield from self._run("overlap", lambda: (ear.find(window),), audio, timer)
        if found is None:
            return None
        return any(span.shifted(start).overlap(command) for span in found[0] or ())

    def _judge_corrections(
        self, audio: TurnAudio, tracks: _Tracks, evidence: Evidence, state: SessionState
    ) -> tuple[Evidence, SessionState]:
        """Whoever corrects a value sets it: a "no, seven" in another voice, or from afar, makes it that source's call.

        A correction too short to score stands with the command around it.
        """
        for span in evidence.corrections:
            if span.samples < self.ears.speaker.min_samples:
                continue
            proximity = self._near(audio, tracks, span)
            speaker, _ = judge_speaker(
                state, self.owner_mode, self.speaker_thresholds, self._embed(audio, tracks, span), span,
                proximity.verdict, self.ears.speaker.model, audio.turn_id,
            )  # fmt: skip
            if speaker.verdict is SpeakerVerdict.OTHER or proximity.verdict is DistanceVerdict.FAR:
                return replace(evidence, speaker=speaker, proximity=proximity), state
        return evidence, state

    def _propose(
        self,
        audio: TurnAudio,
        heard_segment: HeardSegment,
        segment: Segment,
        state: SessionState,
        heard: Heard | None,
        timer: _Timer,
    ) -> Generator[Compute, Computed, tuple[Proposal, PolicyOutput | None]]:
        if heard is None:
            return Proposal(None, failure=Reason.EAR_FAILED, detail="the speech ear failed"), None
        if not segment.words:
            return Proposal(None, failure=Reason.NO_SPEECH, detail=heard.note), None
        if self.question is not None:
            return Proposal(None, failure=Reason.NO_SPEECH, detail="kept for the question"), None
        if audio.listened.failure is not None:
            return audio.listened.failure, None
        local = segment.span.shifted(-audio.span.start_sample)
        request = PolicyInput(
            audio.turn_id,
            heard_segment,
            state.context,
            self.catalogue.all(),
            audio=audio.samples[local.start_sample : local.end_sample],
            encoder_states=_states_within(heard, local),
            start_sample=segment.span.start_sample,
            notes=audio.listened.texts_until(segment.span.end_sample),
        )
        return (yield from self._ask_policy(request, timer))

    def _ask_policy(
        self, request: PolicyInput, timer: _Timer
    ) -> Generator[Compute, Computed, tuple[Proposal, PolicyOutput | None]]:
        done = yield Compute("policy", lambda: self.policy.propose(request), self.limits.policy_s)
        timer.add("policy", done)
        if done.error is not None:
            return _failed(done.error), None
        output = done.value
        if not isinstance(output, PolicyOutput) or not isinstance(output.text, str):
            return Proposal(None, failure=Reason.POLICY_FAILED, detail="the policy returned no text"), None
        read = output.normalised if self.dialects and output.normalised is not None else output.text
        return Proposal(parse(read), output.text), output

    # The decision and its effects ---------------------------------------------------------------------------------

    def _finish(self, item: _Ready, timing: events.TimingRecord, now_s: float) -> Generator[Launch, object, None]:
        evidence, proposal = item.evidence, item.proposal
        end_sample = evidence.span.end_sample
        if item.output is not None:
            self.log.emit(
                events.Proposed, end_sample, clock_s=now_s, turn=evidence.turn_id, raw=proposal.raw,
                normalised=item.output.normalised, dialect=item.output.dialect,
                action_scores=dict(item.output.action_scores),
            )  # fmt: skip
        now_sample = evidence.span.start_sample
        repair = expire(self.box.state.repair, now_sample)
        self.box.confirmation = confirm.expire(self.box.confirmation, now_sample)
        answered = self._answer_to_question(evidence, proposal) or self._withdrawal(evidence, proposal)
        if answered is not None:
            self.box.state = replace(self.box.state, repair=RepairState())
            yield from self._carry_out(answered, timing, now_s)
            return
        repair = call_off(repair, evidence)
        merged = merge(repair, proposal.parsed, evidence, self.catalogue, self.repair)
        if merged is not None:
            proposal = replace(proposal, parsed=merged.action, failure=None, detail="completes the pending call")
            evidence = merged.evidence
        decision = decide(proposal, evidence, self._facts(end_sample), self.thresholds, self.catalogue)
        repair, decision = after_decision(repair, decision, end_sample, self.repair)
        self.box.state = replace(self.box.state, repair=repair)
        if decision.action is ActionKind.TOOL and decision.call is not None:
            summary = self.catalogue.summary(decision.call)
            risk = self._risk_of(decision.call)
            decision, self.box.confirmation = confirm.ask(decision, risk, summary, end_sample, self.confirmations)
        yield from self._carry_out(decision, timing, now_s)

    def _facts(self, end_sample: int) -> SessionFacts:
        # A decision that comes long after its turn is made at the stream's position: it may have gone stale.
        now_sample = max(end_sample, self.position())
        tools_off = self.tools_off() or ("" if self.execute is not None else "nothing can execute them")
        return SessionFacts(self.box.state.owner is not None, now_sample, tools_off, self.question is not None)

    def _risk_of(self, call: ToolCall) -> Risk:
        tool = self.catalogue.find(call.name)
        return max(Risk) if tool is None else tool.risk

    def _answer_to_question(self, evidence: Evidence, proposal: Proposal) -> Decision | None:
        """The decision when this turn answers the open confirmation, or None when it does not."""
        question = self.box.confirmation
        reply = confirm.read(evidence, question.summary) if question is not None else None
        if question is None or reply is None:
            return None
        if reply is confirm.Reply.UNSURE_YES:
            # The question stays open: the owner is asked for enough of her voice to tell.
            text = "I am not sure that was you. Please say: yes, go ahead with it."
            return Decision(ActionKind.PARDON, Reason.SPEAKER_UNSURE, evidence, proposal, call=question.call, text=text)
        self.box.confirmation = None
        if reply is confirm.Reply.NO:
            return Decision(
                ActionKind.ANSWER, Reason.DECLINED, evidence, proposal, call=question.call, text="Okay, I will not."
            )
        if reply is confirm.Reply.OTHER:
            return None
        agreed = replace(proposal, parsed=ToolAction(question.call), failure=None, detail="confirmed")
        end_sample = evidence.span.end_sample
        decision = decide(
            agreed, confirm.confirmed(question, evidence), self._facts(end_sample), self.thresholds, self.catalogue
        )
        return replace(decision, reason=Reason.CONFIRMED) if decision.action is ActionKind.TOOL else decision

    def _withdrawal(self, evidence: Evidence, proposal: Proposal) -> Decision | None:
        """The decision when the owner takes back a call that has not started, or one that has; None otherwise."""
        if self.box.state.repair.pending is not None or not is_refusal(evidence.words):
            return None
        if not is_from_owner(evidence) and confirm.read(evidence) is not confirm.Reply.NO:
            return None
        oldest = evidence.span.start_sample - WITHDRAWAL_SAMPLES
        recent = [grace for grace in self.box.graces if grace.span.end_sample >= oldest and not grace.withdrawn]
        if not recent:
            return None
        latest = recent[-1]
        if latest.started:
            text = "Too late, that is already done."
            return Decision(ActionKind.ANSWER, Reason.TOO_LATE, evidence, proposal, call=latest.call, text=text)
        latest.withdrawn = True
        return Decision(
            ActionKind.ANSWER, Reason.WITHDRAWN, evidence, proposal, call=latest.call, text="Okay, cancelled."
        )

    def _carry_out(
        self, decision: Decision, timing: events.TimingRecord, now_s: float
    ) -> Generator[Launch, object, None]:
        end_sample = decision.evidence.span.end_sample
        turn_id = decision.evidence.turn_id
        self.box.decisions[decision.action.value] = self.box.decisions.get(decision.action.value, 0) + 1
        self.log.emit(events.Decided, end_sample, clock_s=now_s, timing=timing, **decided_fields(decision))
        if decision.action is ActionKind.ANSWER and claims_execution(decision.text):
            self.log.emit(events.ClaimWithoutExecution, end_sample, clock_s=now_s, turn=turn_id, answer=decision.text)
        if decision.action is not ActionKind.TOOL:
            return
        call, grant, execute = decision.call, decision.grant, self.execute
        assert call is not None, "a Tool decision names its call"
        assert grant is not None, "a Tool decision mints a grant"
        assert execute is not None, "without an executor tools are off, and off is never Tool"

        def done(value: object, error: BaseException | None, at_s: float) -> None:
            record = cast(Execution, value)
            outcome, detail, summary = (
                ("outcome_unknown", _describe(error), "")
                if error is not None
                else (str(record.state), record.detail, record.summary)
            )
            self.log.emit(
                events.Executed, end_sample, clock_s=at_s, turn=turn_id, tool=call.name, params=dict(call.params),
                outcome=outcome, detail=detail, summary=summary,
            )  # fmt: skip

        grace = Grace(turn_id, call, decision.evidence.span)
        self.box.graces = [*self.box.graces[-7:], grace]

        async def run() -> object:
            grace.started = True
            return await execute(call, grant, now_sample=self.position())

        def ended_early(why: str) -> None:
            self.log.emit(
                events.Executed, end_sample, turn=turn_id, tool=call.name, params=dict(call.params),
                outcome="cancelled", detail=why,
            )  # fmt: skip

        def is_withdrawn() -> bool:
            if grace.withdrawn:
                ended_early("taken back by the owner in time")
            return grace.withdrawn

        yield Launch(
            run,
            done,
            delay_s=self.grace_s.get(self._risk_of(call), 0.0),
            extend_s=GRACE_EXTENSION_S,
            # Whoever is speaking when the grace ends may be taking the call back.
            is_held=lambda: bool(self.box.undecided - {turn_id}) and self.grace_s.get(self._risk_of(call), 0.0) > 0,
            is_withdrawn=is_withdrawn,
            abandoned=lambda: ended_early("the session ended before it started"),
        )

    # While somebody speaks ----------------------------------------------------------------------------------------

    def listen(self, so_far: SoFar) -> Work:
        """The work of a listening policy on a turn that is still being spoken: a note, which no parser sees."""
        policy, turn_id = self.policy, so_far.turn_id
        assert isinstance(policy, Listening), "only listening policies are given open turns"
        before = self.box.listened.get(turn_id, Listened())
        if turn_id not in self.box.undecided or before.failure is not None:
            return
        request = SpeechSoFar(turn_id, so_far.samples, self.box.state.context, self.catalogue.all(), before.texts)
        done = yield Compute("listen", lambda: policy.listen(request), self.limits.policy_s)
        assert isinstance(done, Computed), "the worker says what came of a call"
        if turn_id not in self.box.undecided:
            return
        after = replace(before, compute_s=before.compute_s + done.end_s - done.start_s)
        if done.error is not None:
            after = replace(after, failure=_failed(done.error, "while listening: "))
        elif done.value:
            after = replace(after, notes=(*before.notes, (so_far.span.end_sample, str(done.value))))
        self.box.listened[turn_id] = after

    # Typed text, and a question about a recording -----------------------------------------------------------------

    def typed(self, turn_id: str, text: str) -> Work:
        """The work of a command that the operator typed: no acoustic evidence is needed, or made up."""
        timer = _Timer()
        here = self.position()
        words = tuple(Word(part, Span(here, here), 1.0) for part in text.split())
        segment = HeardSegment(words, SpeakerVerdict.OWNER, DistanceVerdict.NEAR)
        request = PolicyInput(
            turn_id, segment, self.box.state.context, self.catalogue.all(), modality=Modality.TEXT,
            question=self.question,
        )  # fmt: skip
        proposal, output = yield from self._ask_policy(request, timer)
        now_s = yield Confirm()
        assert isinstance(now_s, float), "the worker says when work goes on"
        evidence = self._typed_evidence(turn_id, Span(here, here), words)
        timing = events.TimingRecord(
            speech_end=here / SAMPLE_RATE_HZ, endpoint=here / SAMPLE_RATE_HZ, decision=now_s, compute=timer.compute_s
        )
        yield from self._finish(_Ready(segment, evidence, proposal, output), timing, now_s)

    def _typed_evidence(self, turn_id: str, span: Span, words: tuple[Word, ...]) -> Evidence:
        limits = self.distance_thresholds
        return Evidence(
            turn_id, span, words,
            SpeakerEvidence(SpeakerVerdict.UNSURE, None, 1.0, -1.0, span, "typed by the operator"),
            ProximityEvidence(DistanceVerdict.UNSURE, None, limits.near_at, limits.far_below, span, "typed"),
            (), Modality.TEXT,
        )  # fmt: skip

    def answer_question(self, turn_id: str, end_sample: int) -> Work:
        """The work of the question about everything heard: the policy reads all segments and answers once."""
        assert self.question is not None, "only sessions with a question ask one"
        timer = _Timer()
        heard = list(self.box.heard)
        if not heard:
            span = Span(0, end_sample)
            proximity, speaker, _ = self._unknown_source(span, self.box.state, "nothing was heard")
            evidence = Evidence(turn_id, span, (), speaker, proximity, None)
            segment = HeardSegment((), SpeakerVerdict.UNSURE, DistanceVerdict.UNSURE)
            proposal, output = Proposal(None, failure=Reason.NO_SPEECH, detail="nothing was heard"), None
        else:
            segment = heard[-1][0]
            request = PolicyInput(
                turn_id, segment, tuple(item[0] for item in heard[:-1]), self.catalogue.all(), question=self.question,
                audio=_joined(self.box.sounds),
            )  # fmt: skip
            proposal, output = yield from self._ask_policy(request, timer)
            evidence = _whole(turn_id, [item[1] for item in heard])
        now_s = yield Confirm()
        assert isinstance(now_s, float), "the worker says when work goes on"
        timing = events.TimingRecord(
            speech_end=evidence.span.end_s, endpoint=evidence.span.end_s, decision=now_s, compute=timer.compute_s
        )
        yield from self._finish(_Ready(segment, evidence, proposal, output), timing, now_s)


def _joined(sounds: list[tuple[Span, Samples]]) -> Samples:
    """The turns of a recording in their places, silence between them."""
    start = sounds[0][0].start_sample
    whole = np.zeros(sounds[-1][0].end_sample - start, np.float32)
    for span, samples in sounds:
        whole[span.start_sample - start : span.end_sample - start] = samples
    return whole


def _whole(turn_id: str, parts: list[Evidence]) -> Evidence:
    """One evidence over a whole recording. The source is the last segment's: a tool still needs its licence."""
    last = parts[-1]
    damage = None
    if all(part.damage is not None for part in parts):
        damage = tuple(stretch for part in parts for stretch in part.damage or ())
    return replace(
        last,
        turn_id=turn_id,
        span=parts[0].span.cover(last.span),
        words=tuple(word for part in parts for word in part.words),
        heard=tuple(word for part in parts for word in part.as_heard),
        turn_starts=tuple(accumulate(len(part.words) for part in parts))[:-1],
        damage=damage,
        source_gap=any(part.source_gap for part in parts),
    )


def _timing(audio: TurnAudio, endpoint_s: float, decision_s: float, timer: _Timer) -> events.TimingRecord:
    return events.TimingRecord(
        speech_end=audio.speech_end_sample / SAMPLE_RATE_HZ,
        endpoint=endpoint_s,
        decision=decision_s,
        compute={stage: round(seconds, 6) for stage, seconds in timer.compute_s.items()},
    )


def _failed(error: BaseException, when: str = "") -> Proposal:
    """What stands in the place of a proposal when the policy fails."""
    reason = Reason.POLICY_TIMEOUT if isinstance(error, TimeoutError) else Reason.POLICY_FAILED
    return Proposal(None, failure=reason, detail=f"{when}{_describe(error)}")


def _describe(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


def _states_within(heard: Heard, span: Span) -> npt.NDArray[np.float32] | None:
    """The recogniser's encoder states over a span of the turn, 50 a second."""
    if heard.encoder_states is None:
        return None
    frame_samples = SAMPLE_RATE_HZ // 50
    return heard.encoder_states[span.start_sample // frame_samples : -(-span.end_sample // frame_samples)]
