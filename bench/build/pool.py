"""Work that needs speech, over several processes, each with its own synthesiser behind the shared cache."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from bench.build.speech import Request, Speech
from gate.span import SAMPLE_RATE_HZ

Item = TypeVar("Item")
Result = TypeVar("Result")

_speech: Speech | None = None


def each_with_speech(
    items: Collection[Item], work: Callable[[Item, Speech], Result], factory: Callable[[], Any], workers: int,
    speech_folder: Path | None,
) -> Iterator[tuple[Item, Result]]:  # fmt: skip
    """Do the same with every item.

    Args:
        items: what to work on; none starts no process.
        work: what to do with one; importable.
        factory: makes a synthesiser in each process; importable.
        workers: processes, one thread each.
        speech_folder: the speech cache; None for the usual one.

    Yields:
        Each item with what came of it, in the order in which they end. Leaving off cancels what has not begun.

    Raises:
        Exception: what ``work`` raises.
    """
    if not items:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_start, initargs=(factory, speech_folder)) as pool:
        jobs = {pool.submit(_work, work, item): item for item in items}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start(factory: Callable[[], Any], speech_folder: Path | None) -> None:
    global _speech
    _speech = Speech(factory(), speech_folder)


def _work(work: Callable[[Item, Speech], Result], item: Item) -> Result:
    assert _speech is not None, "the pool starts every worker with its own cache"
    return work(item, _speech)


def fill(
    speech: Speech, requests: Iterable[Request], factory: Any, workers: int, folder: Path | None = None
) -> Iterator[tuple[int, int, float]]:
    """Make whatever is not in the cache yet.

    Args:
        speech: tells what is there.
        requests: what will be needed.
        factory: makes a synthesiser in each process; importable.
        workers: processes, one thread each.
        folder: as for ``Speech``.

    Yields:
        How many are done, of how many that were missing, and how many seconds the last one lasts.

    Raises:
        SpeechBuildError: when one cannot be spoken.
    """
    missing = sorted({request for request in requests if not speech.has(request)})
    for done, (_, spoken_s) in enumerate(each_with_speech(missing, _speak, factory, workers, folder), 1):
        yield done, len(missing), spoken_s


def _speak(request: Request, speech: Speech) -> float:
    return speech.say(request.text, request.voice, request.speed).samples.size / SAMPLE_RATE_HZ
