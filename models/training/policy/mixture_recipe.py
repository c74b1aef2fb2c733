"""How much of what goes into a mixture: a few numbers, frozen and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gate.evidence import DistanceVerdict, SpeakerVerdict

OWNER, OTHER = SpeakerVerdict.OWNER, SpeakerVerdict.OTHER
NEAR, FAR = DistanceVerdict.NEAR, DistanceVerdict.FAR


@dataclass(frozen=True, slots=True)
class Source:
    """Who says the words of a row, from where, and after what silence.

    Attributes:
        speaker: the ears' verdict.
        distance: likewise.
        gap_s: silence before, in seconds; None to draw it.
    """

    speaker: SpeakerVerdict = OWNER
    distance: DistanceVerdict = NEAR
    gap_s: float | None = None


WEARER = Source()
"""Whose words count."""


def _frozen(**rows: int) -> Mapping[str, int]:
    return MappingProxyType(rows)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The proportions of a mixture.

    Attributes:
        name: of the preset.
        switch_groups: how many commands are given under counterfactual sources. One row of a group is right for the
            call, ``mutes`` rows for silence; VGBench trains on 306 and 906.
        mutes: rows of a group that are right for silence.
        tool_sources: sources for which the call is right, taken in turn, group by group.
        mute_sources: sources for which it is not, taken in turn, row by row.
        strangers: who else's words do not count, as other kinds of rows draw them.
        rows: how many rows of each other kind, at most; a kind that is not listed is left out.
        noise: share of the rows whose words are noisy.
        context: share of the spoken rows with earlier segments.
        unsure: share of the rows in which an ear is unsure, where that changes nothing about what is right.
        as_heard: share of the spoken rows that are left as they were heard; in the others self-corrections are
            carried out, as the live loop does before a policy reads them.
        corrected: share of the commands in which an argument is said wrongly first.
        hailed: share of the rows meant for the assistant that call it by a name.
        most_repeats: how often a line may serve one kind.
    """

    name: str
    switch_groups: int
    tool_sources: tuple[Source, ...]
    mute_sources: tuple[Source, ...]
    strangers: tuple[Source, ...]
    rows: Mapping[str, int] = field(default_factory=dict)
    mutes: int = 3
    noise: float = 0.4
    context: float = 0.5
    unsure: float = 0.1
    as_heard: float = 0.3
    corrected: float = 0.12
    hailed: float = 0.06
    most_repeats: int = 2

    def held_out(self) -> Recipe:
        """The same for dev and test: a quarter of the rows, and each line once a kind."""
        return replace(
            self, switch_groups=-(-self.switch_groups // 4), most_repeats=1,
            rows=MappingProxyType({kind: -(-count // 4) for kind, count in self.rows.items()}),
        )  # fmt: skip


_SHIPPED_ROWS = _frozen(
    command=700, typed=400, two_commands=150, incomplete=300, masked_argument=450, masked_elsewhere=220,
    missing_argument=180, question=800, typed_question=60, question_other=300, masked_question=220,
    question_masked_elsewhere=160, self_talk=1400, side_talk=1250, quoted_commands=200, small_talk=160, injection=150,
    side_talk_both=235, side_talk_assistant=120, side_talk_bystander=120, told=420, told_masked=420,
    told_masked_elsewhere=300, cannot=420, others_request=350, others_talk=350, own_talk=150,
)  # fmt: skip

SHIPPED = Recipe(
    "shipped",
    switch_groups=560,
    tool_sources=(Source(gap_s=0.0), Source(gap_s=0.6), Source()),
    # Every group has the owner from afar and somebody else from near and from afar; every source every gap.
    mute_sources=(
        Source(OTHER, NEAR, 0.0), Source(OTHER, FAR, 0.6), Source(OWNER, FAR),
        Source(OTHER, NEAR, 0.6), Source(OTHER, FAR), Source(OWNER, FAR, 0.0),
        Source(OTHER, NEAR), Source(OTHER, FAR, 0.0), Source(OWNER, FAR, 0.6),
    ),
    strangers=(Source(OTHER, NEAR), Source(OTHER, FAR), Source(OWNER, FAR)),
    rows=_SHIPPED_ROWS,
)  # fmt: skip
"""The proximity policy: only the owner, near by. What the project ships."""

CUE_BALANCED = Recipe(
    "cue_balanced",
    switch_groups=560,
    tool_sources=tuple(Source(OWNER, where, gap_s) for where in (NEAR, FAR) for gap_s in (0.0, 0.6)),
    mute_sources=tuple(Source(OTHER, where, gap_s) for where in (NEAR, FAR) for gap_s in (0.0, 0.6)),
    strangers=(Source(OTHER, NEAR), Source(OTHER, FAR)),
    rows=_SHIPPED_ROWS,
)
"""VGBench's control (appendix H): distance and gap say nothing about the label; only whose voice it is does."""

PAPER = Recipe(
    "paper",
    switch_groups=302,
    tool_sources=(Source(gap_s=0.6),),
    mute_sources=(Source(OTHER, FAR, 0.6),),
    strangers=(Source(OTHER, FAR),),
    rows=_frozen(
        command=863, typed=286, question=1000, cannot=600, self_talk=820, side_talk=250, side_talk_both=467,
        small_talk=160, two_commands=100,
    ),
    most_repeats=4,
)  # fmt: skip
"""VGBench's own proportions, 5,748 rows: source, distance and gap change together, and nothing is repaired."""

PRESETS: Mapping[str, Recipe] = MappingProxyType({recipe.name: recipe for recipe in (SHIPPED, PAPER, CUE_BALANCED)})
