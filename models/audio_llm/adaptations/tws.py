"""TwS: the model measures the sound with a few local tools before it acts.

After *Thinking with sound: audio chain-of-thought enables multimodal reasoning in large audio-language models* (Xiong
et al., 2025, arXiv 2509.21749). Its operators that return a new waveform are left out, as in VGBench's adaptation,
which has voice, pitch, energy and spectral tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gate.grammar import render
from models.audio_llm.adaptations.adapted import ACT, Adapted, Exchange
from models.audio_llm.adaptations.backends import load_backend
from models.audio_llm.adaptations.sound_tools import DESCRIPTION, CallError, SoundTools
from models.audio_llm.conversation import BackendError, Message, Part, Status, assistant, user
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.worked_turns import WorkedTurn
from models.protocols import PolicyInput, PolicyOutput, SpeakerEar

if TYPE_CHECKING:
    from models.store import Store

MAX_CALLS = 3
"""Calls that could not be run count too."""
STEP_TOKENS = 64
ENOUGH = "[Enough]"
SPEAKER = "campplus-onnx"
"""The ear that compares voices."""

MEASURE = "Measure."
MORE = "More?"

_WORKED_S = 2.0
_WORKED_CALL = '{"tool": "spectrum", "start": 0.3, "end": 1.7}'
_WORKED_ANSWER = "Measured: Tilt -6.1 dB an octave, centroid 820 Hz, 4 to 8 kHz -21 dB against what lies below 1 kHz."


class Tws(Adapted):
    """A chat with tools on the sound. At most ``MAX_CALLS`` steps, then the action.

    Args:
        base: the policy that is adapted.
        ear: compares voices.
    """

    name = "tws"
    protocol = f"""Each time you are first told: {MEASURE} Then write one line and nothing else: one of these calls, \
with times in seconds,
{DESCRIPTION}
or {ENOUGH} when you know enough. After each you are asked: {MORE} You have {MAX_CALLS} calls.
Then you are told: {ACT} Only then write one of the four forms."""

    def __init__(self, base: AudioLlmPolicy, ear: SpeakerEar) -> None:
        super().__init__(base)
        self._ear = ear

    def adapted(self, turn: PolicyInput, exchange: Exchange) -> PolicyOutput:
        """Calls and their results until the model knows enough or has none left, then the action."""
        if turn.audio is None:
            raise BackendError(Status.WRONG_INPUT, "a turn of speech without its sound")
        tools = SoundTools(turn.audio, self._ear)
        request = f"{_long(tools.duration_s)} {MEASURE}"
        answer, answers = "", list[str]()
        for _ in range(MAX_CALLS):
            step = exchange.step(request, self.room(STEP_TOKENS))
            if step == ENOUGH:
                return self.act(exchange, ACT, turn.tools, answers)
            answer = _answer(tools, step)
            answers.append(answer)
            request = f"{answer} {MORE}"
        return self.act(exchange, f"{answer} {ACT}", turn.tools, answers)

    def demonstration(self, worked: WorkedTurn, material: tuple[Part, ...]) -> list[Message]:
        """One measure, and the action."""
        return [
            user(*material, f"{_long(_WORKED_S)} {MEASURE}"), assistant(_WORKED_CALL),
            user(f"{_WORKED_ANSWER} {MORE}"), assistant(ENOUGH),
            user(ACT), assistant(render(worked.action)),
        ]  # fmt: skip

    def is_step(self, text: str) -> bool:
        """Whether it is a call on the sound, or the end of them."""
        return ENOUGH in text or '"tool"' in text


def _long(duration_s: float) -> str:
    return f"The sound is {duration_s:.2f} s long."


def _answer(tools: SoundTools, step: str) -> str:
    try:
        return f"Measured: {tools.run(step)}"
    except CallError as error:
        return f"Not measured: {error}"


def load(store: Store, threads: int, options: Mapping[str, str] | None = None) -> Tws:
    """TwS on a backend (see ``load_backend``).

    Raises:
        UnknownComponentError: for a backend or an option that does not exist.
        ModelError: when a model is not here; names the cure.
    """
    from models.components import load_speaker

    return Tws(load_backend(Tws.name, store, threads, options), load_speaker(SPEAKER, store, threads))
