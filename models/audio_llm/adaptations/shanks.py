"""SHANKS: private notes every four seconds while somebody speaks, and the action when they have stopped.

After *SHANKS: simultaneous hearing and thinking for spoken language models* (Chiang et al., ACL 2026, arXiv
2510.06917), which is trained to think between chunks of speech; here a chat is only asked to. The loop runs ``listen``
as work of the turn, on the same worker and the same clock as everything else: a note that takes longer than the speech
it was to hide behind delays the decision, and that is measured. A turn of less than a chunk is decided as it would be
without notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gate.evidence import DistanceVerdict, SpeakerVerdict
from gate.grammar import render
from models.audio_llm.adaptations.adapted import ACT, Adapted, Exchange
from models.audio_llm.adaptations.backends import load_backend
from models.audio_llm.conversation import Message, Part, TooLongError, assistant, user
from models.audio_llm.worked_turns import WorkedTurn
from models.protocols import HeardSegment, PolicyInput, PolicyOutput, SpeechSoFar

if TYPE_CHECKING:
    from models.store import Store

CHUNK_S = 4.0
"""As the paper's; it found 3 and 5 s no better."""
MAX_CHUNKS = 8
NOTE_TOKENS = 80
NOTE_CHARS = 400
EOPA = "[EOPA]"
"""End of a part of the audio."""
EOA = "[EOA]"
"""End of the audio when it is told to the model, end of a note when the model writes it."""

_HEAD = "Your notes:"


class Shanks(Adapted):
    """A chat that notes what it hears while it hears it. Implements ``models.protocols.Listening``."""

    name = "shanks"
    protocol = f"""{EOPA} says that they are still speaking. Then write a private note of at most 40 words: who \
speaks, to whom, whether it is one voice, from near by or from afar, and what has been asked so far. Nobody will see \
it. End it with {EOA}
{EOA} says that they have stopped. Only then write one of the four forms."""
    chunk_s = CHUNK_S
    max_chunks = MAX_CHUNKS

    def listen(self, so_far: SpeechSoFar) -> str:
        """A private note on what has been said so far.

        Returns:
            The note in one line, at most ``NOTE_CHARS`` long; empty where the sound is longer than the chat takes.

        Raises:
            BackendError: when no reply comes.
        """
        if len(so_far.notes) >= self.max_chunks:
            return ""
        request = "\n".join([*_listed(so_far.notes), EOPA])
        try:
            note = self.exchange(_unfinished(so_far)).step(request, self.room(NOTE_TOKENS), EOA)
        except TooLongError:
            return ""
        return " ".join(note.removesuffix(EOA).split())[:NOTE_CHARS]

    def adapted(self, turn: PolicyInput, exchange: Exchange) -> PolicyOutput:
        """The action, after the notes that were made."""
        notes = turn.notes[: self.max_chunks]
        return self.act(exchange, _to_act(notes), turn.tools, notes)

    def demonstration(self, worked: WorkedTurn, material: tuple[Part, ...]) -> list[Message]:
        """A note as if more were to come; and, from the start again, the action with that note at hand."""
        note = f"One voice, {worked.speaker}, {worked.distance}, speaks to {worked.addressee}."
        return [
            user(*material, EOPA), assistant(f"{note} {EOA}"),
            user(*material, _to_act([note])), assistant(render(worked.action)),
        ]  # fmt: skip

    def is_step(self, text: str) -> bool:
        """Whether it holds a mark of a note."""
        return EOA in text or EOPA in text


def _unfinished(so_far: SpeechSoFar) -> PolicyInput:
    """A turn of which nothing is known yet but its sound."""
    nobody = HeardSegment((), SpeakerVerdict.UNSURE, DistanceVerdict.UNSURE)
    return PolicyInput(so_far.turn_id, nobody, so_far.context, so_far.tools, audio=so_far.audio)


def _to_act(notes: Sequence[str]) -> str:
    return "\n".join([*_listed(notes), f"{EOA} {ACT}"])


def _listed(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    return [_HEAD, *(f"{number}. {note}" for number, note in enumerate(notes, 1))]


def load(store: Store, threads: int, options: Mapping[str, str] | None = None) -> Shanks:
    """SHANKS on a backend (see ``load_backend``).

    Raises:
        UnknownComponentError: for a backend or an option that does not exist.
        ModelError: when its model is not here; names the cure.
    """
    return Shanks(load_backend(Shanks.name, store, threads, options, listens=True))
