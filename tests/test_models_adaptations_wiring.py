"""Each adaptation on networks of the very classes that audio language models are, through the live loop.

Every conversation of every step goes through a class's own chat template, audio encoder and decoding. A tiny network
can be taught to say one action, but not whole steps as well: what those say is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from agent.sources import Silence
from models.audio_llm.adaptations.adapted import Adapted
from models.audio_llm.adaptations.aura import Aura
from models.audio_llm.adaptations.shanks import EOA, Shanks
from models.audio_llm.adaptations.tws import ENOUGH, Tws
from models.audio_llm.conversation import AudioChat, Message, Reply, Stop, Stopped
from models.audio_llm.policy import AudioLlmPolicy
from tests.adaptation_chats import SEND, ScriptedChat
from tests.fake_models import FakeEars, Voice, tone
from tests.loop_harness import Outcome, converse
from tests.test_models_adaptations import CALL, EAR, STEP
from tests.tiny_audio_llms import FAMILIES, one_thread, teach
from tools.catalogue import ToolCatalogue

pytestmark = pytest.mark.slow  # torch and transformers are imported, and fifteen networks made

COMMAND = Voice(400, "Text Priya that I am late.")
CATALOGUE = ToolCatalogue.builtin(())
MAKE: dict[str, tuple[Callable[[AudioLlmPolicy], Adapted], Sequence[str]]] = {
    "aura": (Aura, (STEP,)),
    "tws": (lambda base: Tws(base, EAR), (CALL, ENOUGH)),
    "shanks": (Shanks, (f"One voice, near. {EOA}",)),
}


@pytest.fixture(scope="module", autouse=True)
def torch_alone() -> Iterator[None]:
    with one_thread():
        yield


class Prompted:
    """A network that is asked everything, and whose steps are then put into its mouth; its action is its own."""

    def __init__(self, network: AudioChat, steps: Sequence[str]) -> None:
        self._network = network
        self._steps = list(steps)
        self.model, self.limits = network.model, network.limits

    def reply(self, messages: Sequence[Message], max_tokens: int, stop: Stop | None = None) -> Reply:
        """The network's reply, or the step that stands for it."""
        if not self._steps:
            return self._network.reply(messages, max_tokens, stop)
        self._network.reply(messages, 2)
        return Reply(self._steps.pop(0), 2, Stopped.TERMINATOR)


async def live(name: str, chat: AudioChat) -> Outcome:
    policy = MAKE[name][0](AudioLlmPolicy(chat))
    policy.prepare(CATALOGUE.all())
    return await converse([Silence(0.4), tone(COMMAND, 4.2), Silence(1.2)], FakeEars([COMMAND]), policy, CATALOGUE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", MAKE)
async def test_each_class_takes_every_step_and_acts_by_itself(name: str, family: str) -> None:
    """A conversation that a class's template refuses, or without its sound, would end in another action."""
    network = FAMILIES[family]().chat()
    steps = MAKE[name][1]
    script = ScriptedChat([*steps, SEND], limits=network.limits)
    await live(name, script)
    teach(network, [(script.seen[-1][0], SEND)])
    outcome = await live(name, Prompted(network, steps))
    assert outcome.actions == ["tool"]
    assert [call.name for call in outcome.executed] == ["send_message"]


@pytest.mark.parametrize("name", MAKE)
async def test_an_untaught_network_executes_nothing(name: str) -> None:
    """Whatever random weights write in the steps, no step of theirs is an action."""
    policy = MAKE[name][0](AudioLlmPolicy(FAMILIES["qwen2-audio"]().chat(), action_tokens=12))
    outcome = await converse([Silence(0.4), tone(COMMAND, 1.0), Silence(1.2)], FakeEars([COMMAND]), policy, CATALOGUE)
    assert outcome.executed == []
    assert outcome.actions[0] in ("answer", "pardon")
