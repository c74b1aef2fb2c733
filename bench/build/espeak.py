"""eSpeak NG as the second synthesiser: a formant voice, nothing like Kokoro's, for a slice that nothing is trained on.

The library comes in the wheel ``espeakng-loader`` (with ``kokoro-onnx``); it tells each word's first sample itself. It
is under the GPL, is loaded only to build that slice, and is no dependency of this project.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import soxr

from bench.build.kokoro import SpeechBuildError
from bench.build.voices import Voice
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span

FEMALE: Final = ("f1", "f2", "f3", "f4", "f5")
MALE: Final = ("m1", "m2", "m3", "m4", "m6", "m7")
WORDS_A_MINUTE: Final = 165

_SYNCHRONOUS = 2
_UTF8 = 1
_BY_CHARACTER = 1
_RATE, _PITCH = 1, 3
_EVENT_WORD, _EVENT_END = 1, 5
_PITCHES = (35, 50, 65)


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    """``espeak_EVENT`` of ``speak_lib.h``."""

    _fields_ = (
        ("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint), ("text_position", ctypes.c_int),
        ("length", ctypes.c_int), ("audio_position", ctypes.c_int), ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p), ("id", _Id),
    )  # fmt: skip


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Espeak:
    """Text to samples and word times. One a process: the library holds one voice at a time.

    Raises:
        SpeechBuildError: when the library is missing.
    """

    def __init__(self) -> None:
        try:
            loader: Any = importlib.import_module("espeakng_loader")
        except ImportError as error:
            raise SpeechBuildError("this slice needs espeakng-loader: pip install 'voicegate[tts]'") from error
        self._library = ctypes.CDLL(loader.get_library_path())
        self._rate_hz = self._library.espeak_Initialize(_SYNCHRONOUS, 0, loader.get_data_path().encode(), 0)
        if self._rate_hz <= 0:
            raise SpeechBuildError("espeak-ng does not start")
        self._library.espeak_Info.restype = ctypes.c_char_p
        self.identity = f"espeak-ng-{self._library.espeak_Info(None).decode().split()[0]}"
        self._pieces: list[npt.NDArray[np.int16]] = []
        self._starts: list[tuple[int, int]] = []
        self._end = 0
        self._callback = _CALLBACK(self._take)  # kept: the library holds a bare pointer to it
        self._library.espeak_SetSynthCallback(self._callback)

    def say(self, text: str, voice: Voice, speed: float = 1.0) -> tuple[npt.NDArray[np.float32], tuple[Word, ...]]:
        """Speak one text; see ``bench.build.speech.Synthesiser``.

        Raises:
            SpeechBuildError: when nothing comes of it.
        """
        variant, pitch = variant_of(voice)
        language = "en" if voice.accent == "b" else "en-us"  # "en" is eSpeak NG's British English
        if self._library.espeak_SetVoiceByName(f"{language}+{variant}".encode()) != 0:
            raise SpeechBuildError(f"espeak-ng has no voice {language}+{variant}")
        self._library.espeak_SetParameter(_RATE, round(WORDS_A_MINUTE * speed), 0)
        self._library.espeak_SetParameter(_PITCH, pitch, 0)
        self._pieces, self._starts, self._end = [], [], 0
        encoded = text.encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, _BY_CHARACTER, 0, _UTF8, None, None)
        if not self._pieces or not self._starts:
            raise SpeechBuildError(f"espeak-ng says nothing for {text!r}")
        audio = np.concatenate(self._pieces).astype(np.float32) / 32768.0
        samples = np.asarray(soxr.resample(audio, self._rate_hz, SAMPLE_RATE_HZ), dtype=np.float32)
        return samples, self._words(text, samples.size)

    def _words(self, text: str, samples: int) -> tuple[Word, ...]:
        """Words by the text position of their event; a word that got none (run together) ends where it begins."""
        scale = SAMPLE_RATE_HZ / self._rate_hz
        out: list[Word] = []
        at, found = 0, iter([*self._starts, (len(text) + 1, self._end)])
        position, start = next(found)
        for word in text.split():
            at = text.index(word, at)
            begin = start
            while position <= at + len(word):
                position, start = next(found, (len(text) + 2, self._end))
            out.append(Word(word, Span(min(samples, round(begin * scale)), min(samples, round(start * scale))), 1.0))
            at += len(word)
        return tuple(out)

    def _take(self, wav: Any, count: int, event_list: Any) -> int:
        if wav and count > 0:
            self._pieces.append(np.ctypeslib.as_array(wav, shape=(count,)).copy())
        index = 0
        while event_list[index].type != 0:
            event = event_list[index]
            if event.type == _EVENT_WORD:
                self._starts.append((event.text_position, event.sample))
            elif event.type == _EVENT_END:
                self._end = event.sample
            index += 1
        return 0


def variant_of(voice: Voice) -> tuple[str, int]:
    """Which of eSpeak NG's variants and pitches stands for a voice of Kokoro's: of the same sex, by the name's hash."""
    choices = FEMALE if voice.sex == "f" else MALE
    digest = hashlib.sha256(voice.name.encode()).digest()
    return choices[digest[0] % len(choices)], _PITCHES[digest[1] % len(_PITCHES)]
