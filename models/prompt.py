"""The words around the words: what the embedded policy reads besides the turn, and the examples that it is shown.

Two kinds of example. *Exemplars* are utterances of each kind, compared with a turn by what the model makes of them
(``models.exemplars``). *Worked calls* show how arguments are written; they stand in the prompt whose key/value cache
is kept, so reading them is paid for once. Both name the tools that come with voicegate; a tool without examples is
known by its description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gate import grammar
from gate.catalogue import ToolFacts
from gate.evidence import DistanceVerdict, Modality, SpeakerVerdict
from models.constrained import UNHEARD
from models.dialogue_lines import labelled_lines
from models.protocols import MASK_MARK, HeardSegment, PolicyInput

ANSWER = "answer"
SELF_TALK = "self_talk"
SIDE_TALK = "side_talk"
BYSTANDER = "bystander"

OWNER_NEAR = (SpeakerVerdict.OWNER, DistanceVerdict.NEAR)
OTHER_FAR = (SpeakerVerdict.OTHER, DistanceVerdict.FAR)
OTHER_NEAR = (SpeakerVerdict.OTHER, DistanceVerdict.NEAR)
_NOT_TOOLS = (ANSWER, SELF_TALK, SIDE_TALK)

UNSURE = (SpeakerVerdict.UNSURE, DistanceVerdict.UNSURE)
OWNER_FAR = (SpeakerVerdict.OWNER, DistanceVerdict.FAR)

_NOT_THE_OWNER_NEAR = (OTHER_FAR, OTHER_NEAR, OWNER_FAR)

_WHO = {
    SpeakerVerdict.OWNER: "The owner",
    SpeakerVerdict.OTHER: "Another person",
    SpeakerVerdict.UNSURE: "Somebody",
}
_WHERE = {DistanceVerdict.NEAR: ", near", DistanceVerdict.FAR: ", far away", DistanceVerdict.UNSURE: ""}

LISTEN_PROMPT = (
    "<|im_start|>system\nYou are a voice assistant. You hear everything that is said near you: commands to you, "
    "questions to you, people talking to themselves, people talking to each other. Say who the words are for and what "
    "should be done.<|im_end|>\n<|im_start|>user\n"
)

ANSWER_PROMPT = (
    "<|im_start|>system\nYou are a helpful voice assistant. Answer with one short sentence.<|im_end|>\n"
    "<|im_start|>user\n"
)
"""Before a question that was spoken to the assistant."""

DIALOGUE_PROMPT = (
    "<|im_start|>system\nYou listen to a dialogue and answer a question about it with one short sentence. Words that "
    f"could not be heard are written {UNHEARD}.<|im_end|>\n<|im_start|>user\n"
    "First speaker: I live in Denver, where do you live?\nSecond speaker: My home is Oslo.\n"
    "Question: Where does the first speaker live?<|im_end|>\n<|im_start|>assistant\n"
    "The first speaker lives in Denver.<|im_end|>\n<|im_start|>user\n"
    f"First speaker: My dog is called Rex, what is yours called?\nSecond speaker: {UNHEARD} is the name of my dog.\n"
    "Question: What is the second speaker's dog called?<|im_end|>\n<|im_start|>assistant\n"
    f"The second speaker's dog is called {UNHEARD}.<|im_end|>\n<|im_start|>user\n"
)
"""Before a labelled dialogue and a question about it."""

REPLY_PROMPT = "<|im_end|>\n<|im_start|>assistant\n"
"""Before the assistant's own words."""

EXEMPLARS: dict[str, tuple[str, ...]] = {
    "send_message": (
        "Text Ben that I'm on my way.",
        "Write to Laura that the keys are under the mat.",
        "Send Mark a message saying happy birthday.",
        "Let my boss know I'm sick today.",
        "Message the neighbours that the water is off.",
        "Tell Kim by text to bring her jacket.",
        "Can you text Grandma that we landed safely?",
        "Send a text to Ivan, I'm stuck in traffic.",
    ),
    "make_call": (
        "Call the dentist.",
        "Phone my uncle.",
        "Could you ring Emma for me?",
        "Dial the number of the hotel.",
        "Please call Mr. Brown on his mobile.",
        "Give the restaurant a call.",
        "I want to call my wife.",
        "Get Peter on the phone.",
    ),
    "schedule_event": (
        "Add lunch with Eva to my calendar on Monday.",
        "Schedule a haircut for next Thursday at five.",
        "Put the team meeting in my diary at nine.",
        "Set up a call with the lawyer tomorrow at two.",
        "Plan a picnic for Sunday afternoon.",
        "Create an event for the school concert on June third.",
        "Make an appointment with the vet on Saturday morning.",
        "Book a meeting about the budget for Wednesday.",
    ),
    "place_order": (
        "Order a bag of rice.",
        "Buy two tickets for the concert.",
        "Get me a new toothbrush from the store.",
        "Please order four bottles of milk.",
        "I'd like to buy a pair of running shoes.",
        "Order some Chinese food for dinner.",
        "Purchase a birthday card online.",
        "Buy six light bulbs.",
    ),
    "transfer_money": (
        "Pay Julia 30 dollars.",
        "Send my cousin fifty euros.",
        "Transfer $200 to the plumber.",
        "Wire three hundred pounds to Mr. Green.",
        "Give Nick 15 dollars for the lunch.",
        "Please pay the gardener eighty dollars.",
        "Move a hundred dollars to Rita.",
        "Send 75 euros to my roommate.",
    ),
    "unlock_door": (
        "Unlock the cellar door.",
        "Open the door lock of the balcony.",
        "Please unlock the main entrance.",
        "Can you unlock the car door?",
        "Open up the shed door, please.",
        "Unlock the apartment.",
        "Let them in, unlock the gate.",
        "Release the lock of the back entrance.",
    ),
    "control_device": (
        "Turn on the radio.",
        "Switch off the bedroom lamp.",
        "Set the oven to 180 degrees.",
        "Make the hallway lights brighter.",
        "Close the blinds in the study.",
        "Turn the volume down on the TV.",
        "Could you start the vacuum cleaner?",
        "Turn off the air conditioner.",
    ),
    "book_ride": (
        "Book a taxi to the museum.",
        "Get me a ride to the train station.",
        "Call a cab to take me to Oak Avenue.",
        "I need a car to the hospital at nine.",
        "Order an Uber to the stadium.",
        "Please get a taxi home.",
        "Book a ride to my office tomorrow at eight.",
        "Find me a ride downtown.",
    ),
    "delete_data": (
        "Delete my old notes.",
        "Erase all the voice recordings.",
        "Remove the pictures from the party.",
        "Clear my browsing history.",
        "Delete the email from Frank.",
        "Wipe the download folder.",
        "Get rid of my old text messages.",
        "Please delete the document about taxes.",
    ),
    "share_location": (
        "Share my location with Leo.",
        "Let Grandma see where I am for an hour.",
        "Send my location to the driver.",
        "Show Nora my position until tonight.",
        "Share where I am with my running group.",
        "Tell my husband my location.",
        "Give Sam access to my location for the next two hours.",
        "Let the team know my live location.",
    ),
    ANSWER: (
        "What time is it in Tokyo?",
        "How tall is Mount Everest?",
        "Who was the first president?",
        "How do planes fly?",
        "What is the population of Japan?",
        "Explain how a battery works.",
        "When was the telephone invented?",
        "Tell me what a haiku is.",
        "What does ambiguous mean?",
        "Is it going to rain tomorrow?",
        "What is fifteen times twelve?",
        "How far is it from London to Paris?",
        "Can you tell me who Marie Curie was?",
        "What is the difference between a frog and a toad?",
        "Name the largest ocean.",
        "Why do cats purr?",
    ),
    SELF_TALK: (
        "Where did I leave my glasses?",
        "I should go to bed.",
        "Okay, what was next on my list?",
        "I must not forget the milk.",
        "Hmm, that does not look right.",
        "Oh no, I'm late again.",
        "So, first the onions, then the garlic.",
        "Why did I come into this room?",
        "Did I turn off the oven?",
        "I should call Mom more often.",
        "I guess I could order something to eat.",
        "Maybe I should sell the car.",
        "Now, what was I looking for?",
        "Next, send the report, then lunch.",
        "Why is this thing not working?",
        "I think I paid that bill already.",
    ),
    SIDE_TALK: (
        "Mom, dinner was great, thank you.",
        "Did you see the game last night?",
        "He said he would be there at eight.",
        "Yes, I saw that movie too.",
        "Ben, are you coming with us?",
        "No, we can't go on Saturday, the kids have school.",
        "How is your new job, Lisa?",
        "She never called me back, can you believe it?",
        "Could you get the door, please, Jack?",
        "We booked a table for seven.",
        "Will you text me when you're home?",
        "Dad, please turn the music down.",
        "I told her to delete the file.",
        "What do you want for dinner, sweetheart?",
        "You owe me twenty dollars, remember?",
        "Anyway, the meeting was moved to Friday.",
    ),
}
"""Utterances of each kind, as a recogniser writes them."""

_WORKED_CALLS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Text Ben that I'm on my way.", (("the contact to text", "Ben"), ("the words of the message", "I'm on my way"))),
    ("Call my uncle Joe.", (("the contact or number to call", "my uncle Joe"),)),
    (
        "Put lunch with Eva in my calendar on Monday at noon.",
        (("what the event is", "lunch with Eva"), ("the day and time as said", "Monday at noon")),
    ),
    (
        "Schedule a haircut for next Thursday morning.",
        (("what the event is", "a haircut"), ("the day and time as said", "next Thursday morning")),
    ),
    (
        "Please order four bottles of milk.",
        (("the item to order", "bottles of milk"), ("how many, 1 to 20", "4")),
    ),
    (f"Transfer $200 to {UNHEARD}.", (("the person to pay", UNHEARD), ("the amount as a number", "200"))),
    (
        "Let Nora see where I am until tonight.",
        (("the contact who may see it", "Nora"), ("for how long, if said", "until tonight")),
    ),
    ("Show the driver my position.", (("the contact who may see it", "the driver"),)),
    (
        f"Write to {UNHEARD} that the keys are under the mat.",
        (("the contact to text", UNHEARD), ("the words of the message", "the keys are under the mat")),
    ),
    ("Erase all the photos from the party.", (("what to delete", "all the photos from the party"),)),
    (
        f"Get me a ride to {UNHEARD} at nine.",
        (("where the ride goes", UNHEARD), ("the pick-up time, if said", "nine")),
    ),
    (f"Tell Kim {UNHEARD}.", (("the contact to text", "Kim"), ("the words of the message", UNHEARD))),
    (
        "Pay my cousin fifty euros.",
        (("the person to pay", "my cousin"), ("the amount as a number", "50"), ("the currency, if said", "euros")),
    ),
    ("Unlock the cellar door.", (("the door to unlock", "the cellar door"),)),
    (
        "Switch off the lamp in the bedroom.",
        (("the device or room light", "the lamp in the bedroom"), ("what to do", "turn_off")),
    ),
    (
        "Set the oven to 180 degrees.",
        (
            ("the device or room light", "the oven"),
            ("what to do", "set"),
            ("the level, colour or mode, as said", "180 degrees"),
        ),
    ),
    ("Find me a taxi home.", (("where the ride goes", "home"),)),
)


@dataclass(frozen=True, slots=True)
class Exemplar:
    """An example utterance with what the ears say of it, and its label: a tool's name or one of the four kinds here."""

    text: str
    speaker: SpeakerVerdict
    distance: DistanceVerdict
    label: str


def exemplars(tools: Sequence[ToolFacts]) -> list[Exemplar]:
    """The examples that a turn is compared with.

    Every kind is shown spoken by the owner and near, and some with both verdicts unsure. Commands by somebody else or
    from afar are shown as the bystander's. A tool without examples is shown by its description, which is an imperative.
    """
    return _exemplars({tool.name: EXEMPLARS.get(tool.name, (tool.description,)) for tool in tools})


def known_exemplars() -> list[Exemplar]:
    """Every example that can occur with any choice of the tools that have examples."""
    commands = {name: said for name, said in EXEMPLARS.items() if name not in _NOT_TOOLS}
    one_by_one = [example for name, said in commands.items() for example in _exemplars({name: said}, every_source=True)]
    return list(dict.fromkeys(one_by_one))


def _exemplars(commands: Mapping[str, tuple[str, ...]], every_source: bool = False) -> list[Exemplar]:
    texts = {**commands, **{kind: EXEMPLARS[kind] for kind in _NOT_TOOLS}}
    out = [Exemplar(text, *OWNER_NEAR, label) for label, said in texts.items() for text in said]
    out += [Exemplar(text, *UNSURE, label) for label, said in texts.items() for text in said[1:8:3]]
    others = [said[index] for said in commands.values() for index in (0, 3) if index < len(said)]
    for label, said in ((BYSTANDER, others), (SIDE_TALK, EXEMPLARS[SIDE_TALK][:9])):
        for index, text in enumerate(said):
            sources = _NOT_THE_OWNER_NEAR if every_source else _NOT_THE_OWNER_NEAR[index % 3 :][:1]
            out += [Exemplar(text, *source, label) for source in sources]
    return out


def command(text: str) -> str:
    """A command as it stands before its arguments."""
    return f'"{text}"'


def _worked_calls() -> str:
    lines = [
        f"A voice assistant writes one action for each thing that it hears: {grammar.MUTE} when it is not spoken to, "
        "an answer to a question, or a call of a tool.",
        f"Each value of a call is copied from what was said. What could not be heard is written {UNHEARD}.",
        "",
    ]
    for said, values in _WORKED_CALLS:
        lines += [command(said), *(f'{cue}: "{value}"' for cue, value in values), ""]
    return "\n".join(lines) + "\n"


CALL_PROMPT = _worked_calls()
"""The action contract and worked calls; a command follows. It names no tools: which one is meant is decided before,
each argument is asked for by its own description, and listing the tools here made no call better (50 of 64 arguments
right with the list before the worked calls, 46 after them, 50 without). So it is the same for any tools, and is read
once, when the model is built."""


def spoken(text: str, speaker: SpeakerVerdict, distance: DistanceVerdict) -> str:
    """What was said, with the ears' verdicts: 'The owner says, near: "Call Ben."'"""
    return f'{lead(speaker, distance)}{text}"'


def lead(speaker: SpeakerVerdict, distance: DistanceVerdict) -> str:
    """What stands before the words: the ears' verdicts and an opening quotation mark."""
    return f'{_WHO[speaker]} says{_WHERE[distance]}: "'


def verdicts(turn: PolicyInput) -> tuple[SpeakerVerdict, DistanceVerdict]:
    """Who spoke and how near. Whoever types is the operator, and sits before the machine."""
    if turn.modality is Modality.TEXT:
        return OWNER_NEAR
    return turn.segment.speaker, turn.segment.distance


def words_of(segment: HeardSegment) -> str:
    """The words of a segment as the model reads them, joined by single spaces."""
    return " ".join(word.text.replace(MASK_MARK, UNHEARD) for word in segment.words)


def dialogue(segments: Sequence[HeardSegment]) -> str:
    """The segments as labelled lines (``models.dialogue_lines``)."""
    return labelled_lines(segments, words_of)
