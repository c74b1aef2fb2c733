"""Real requests to assistants and real talk between people, as language to train on, from a folder that is not ours.

The folder holds JSON Lines: ``clinc150`` (Larson et al. 2019), ``slurp`` (Bastianelli et al. 2020), ``hwu64`` (Liu et
al. 2019) and ``snips`` (Coucke et al. 2018), each with ``text`` and ``intent``; ``disfl_qa`` (Gupta et al. 2021) with
``disfluent``; ``ami_sentences`` (Carletta et al. 2005) with ``text``; ``topical_chat`` (Gopalakrishnan et al. 2019)
with ``turns``. Files that are not there are left out. None of it says which call would be right, so none becomes one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from models.training.policy.lines import BadLineError, Material, RequestLine, TalkLine
from models.training.policy.mixture_overlap import normalised
from models.training.policy.noise import word_set

REQUESTS = ("clinc150", "slurp", "hwu64", "snips")
TALK = ("ami_sentences", "topical_chat")
_MOST_WORDS, _FEWEST_WORDS = 30, 3

_DO = """
    change_language change_accent change_user_name change_ai_name change_speed whisper_mode reset_settings sync_device
    book_flight book_hotel car_rental restaurant_reservation cancel_reservation order_checks report_lost_card
    report_fraud freeze_account pin_change damaged_card new_card credit_limit_change insurance_change
    travel_notification pto_request redeem_rewards rollover_401k direct_deposit find_phone social_post transport_ticket
    email_addcontact lists_createoradd bookrestaurant ratebook addtoplaylist update_playlist
"""
_LOOK_UP = """
    balance bill_balance bill_due transactions spending_history credit_score credit_limit apr interest_rate min_payment
    pto_balance pto_used pto_request_status application_status flight_status order_status weather traffic
    restaurant_reviews restaurant_suggestion how_busy accept_reservations rewards_balance payday income lost_luggage
    last_maintenance oil_change_when tire_pressure exchange_rate expiration_date routing w2 calendar meeting_schedule
    todo_list shopping_list what_song travel_alert gas international_visa email_query email_querycontact lists_query
    alarm_query calendar_query weather_query news_query transport_query transport_traffic qa_stock qa_currency
    recommendation_events recommendation_locations recommendation_movies social_query takeaway_query getweather
    searchcreativework searchscreeningevent
"""
_PLAY = "play_music play_radio play_podcasts play_audiobook play_game playmusic next_song"
REPLIES: Mapping[str, str] = {
    intent: reply
    for reply, intents in (("do", _DO), ("look_up", _LOOK_UP), ("play", _PLAY))
    for intent in intents.split()
}
"""Intents, in lower case, that no tool serves, and the reply to them. What a tool might serve, or a language model
might answer, is not among them."""
_QUESTION_OPENERS = word_set("""
    what what's who who's where where's when which how why is are do does did can could would will whose was were have
    has should whats wheres hows whos
    """)


def read_texts(folder: Path, seed: int, most: int = 1000) -> Material:
    """Real texts.

    Args:
        folder: the folder.
        seed: of the draw; files differ much in length, and each gives as much.
        most: how many texts a file gives at most.

    Returns:
        Requests that are to be turned down, and talk of the kinds "others" (what people say to assistants),
        "others_talk" and "own_talk" (what they say to each other; the latter only where nobody would say it to an
        assistant).

    Raises:
        BadLineError: when a line lacks what it should have; names it.
        OSError: when the folder holds none of the files.
    """
    found = {name: folder / f"{name}.jsonl" for name in (*REQUESTS, "disfl_qa", *TALK)}
    found = {name: path for name, path in found.items() if path.is_file()}
    if not found:
        raise FileNotFoundError(f"{folder} holds none of {', '.join((*REQUESTS, 'disfl_qa', *TALK))} (.jsonl)")
    requests: list[RequestLine] = []
    talk: list[TalkLine] = []
    for name, path in found.items():
        rng = Random(f"{seed}/texts/{name}")
        lines = _once(_entries(path, name))
        for text, intent in rng.sample(lines, min(most, len(lines))):
            if name in TALK:
                written = text
                talk.append(TalkLine(written, "others_talk", "real"))
                if not _may_be_meant(text):
                    talk.append(TalkLine(written, "own_talk", "real"))
                continue
            written = _as_written(text, rng)
            talk.append(TalkLine(written, "others", "real"))
            if reply := "know" if name == "disfl_qa" else REPLIES.get(intent):
                requests.append(RequestLine(written, reply))
    return Material(talk=tuple(talk), requests=tuple(requests))


def _entries(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Texts of fitting length with their intents."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            texts = list(_texts(entry, name))
            intent = str(entry.get("intent", "")).lower()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadLineError(f"{path}:{number}: {type(error).__name__}: {error}") from error
        for text in texts:
            text = " ".join(text.split())
            if _FEWEST_WORDS <= len(text.split()) <= _MOST_WORDS and text.isascii():
                yield text, intent


def _texts(entry: Mapping[str, Any], name: str) -> Iterator[str]:
    if name == "topical_chat":
        yield from (str(turn) for turn in entry["turns"])
    else:
        yield str(entry["disfluent" if name == "disfl_qa" else "text"])


def _once(entries: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    seen: dict[str, tuple[str, str]] = {}
    for text, intent in entries:
        seen.setdefault(normalised(text), (text, intent))
    return list(seen.values())


def _as_written(text: str, rng: Random) -> str:
    """Most as a recogniser with punctuation writes it: small letters alone must not tell that nothing is to be done."""
    if rng.random() < 0.3 or any(char.isupper() for char in text):
        return text
    words = ["I" + word[1:] if word == "i" or word.startswith("i'") else word for word in text.split()]
    end = "?" if words[0] in _QUESTION_OPENERS else "."
    written = " ".join(words).rstrip(".?! ")
    return f"{written[0].upper()}{written[1:]}{end}"


def _may_be_meant(text: str) -> bool:
    """Whether an assistant might be asked or told that: any question, and whatever is too short to tell."""
    first = text.split()[0].lower().strip(",.")
    return "?" in text or first in _QUESTION_OPENERS or len(text.split()) < 6
