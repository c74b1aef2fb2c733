"""The pipeline that a user would wire from well-known parts, one after the other; the speed benchmark's yardstick.

silero-vad ends the turn after 800 ms of silence, faster-whisper's ``transcribe`` writes it down, SpeechBrain's
ECAPA-TDNN embeds it, and the language model writes an action through transformers' ``generate``. Same Whisper and
SmolLM2 weights as the gate. The ECAPA weights are not distributed by any package index, so the network of
``speechbrain/spkrec-ecapa-voxceleb`` (the same layers and widths) runs with random weights: its time is real, its
verdict is not used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio

SILENCE_MS = 800
"""Closing silence of the plain pipeline: a common setting of voice agents."""


@dataclass(frozen=True, slots=True)
class PlainTiming:
    """One turn through the plain pipeline, in seconds of compute.

    Attributes:
        transcribe_s: faster-whisper.
        embed_s: the speaker embedding.
        generate_s: the language model.
        endpoint_s: how long after the labelled end of speech silero-vad ended the turn, in audio time.
        text: what the language model wrote.
    """

    transcribe_s: float
    embed_s: float
    generate_s: float
    endpoint_s: float
    text: str

    @property
    def compute_s(self) -> float:
        """All three, one after the other."""
        return self.transcribe_s + self.embed_s + self.generate_s


class PlainPipeline:
    """Loads every part once.

    Args:
        whisper: folder of the CTranslate2 Whisper model.
        language_model: the GGUF file of SmolLM2.
        system_prompt: what the language model is told.
        threads: CPU threads of each part.
    """

    def __init__(self, whisper: Path, language_model: Path, system_prompt: str, threads: int) -> None:
        import torch
        from faster_whisper import WhisperModel
        from silero_vad import load_silero_vad
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(threads)
        self._torch = torch
        self._vad = load_silero_vad(onnx=True)
        self.whisper = WhisperModel(str(whisper), device="cpu", compute_type="int8", cpu_threads=threads)
        self._ecapa, self._features = _ecapa()
        folder, file = str(language_model.parent), language_model.name
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, gguf_file=file)
        model: Any = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file)
        self._model: Any = model.eval()
        self._system_prompt = system_prompt

    def endpoint_s(self, audio: Audio, speech_end_s: float) -> float:
        """When silero-vad ends the turn, in seconds after the labelled end of speech.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz with at least 1.5 s of silence at its end.
            speech_end_s: the label.
        """
        from silero_vad import VADIterator

        iterator = VADIterator(self._vad, min_silence_duration_ms=SILENCE_MS, sampling_rate=SAMPLE_RATE_HZ)
        ended: list[float] = []
        for start in range(0, len(audio) - 511, 512):
            found = iterator(self._torch.from_numpy(audio[start : start + 512]))
            if found and "end" in found:
                ended.append((start + 512) / SAMPLE_RATE_HZ)
        iterator.reset_states()
        after = [at_s - speech_end_s for at_s in ended if at_s >= speech_end_s]
        return after[0] if after else SILENCE_MS / 1000

    def run(self, audio: Audio, endpoint_s: float) -> PlainTiming:
        """One turn, one part after the other.

        Args:
            audio: the turn, float32 ``(samples,)``.
            endpoint_s: what ``endpoint_s`` said.
        """
        start_s = time.perf_counter()
        segments, _ = self.whisper.transcribe(audio, language="en")
        transcript = " ".join(segment.text.strip() for segment in segments)
        transcribed_s = time.perf_counter()
        with self._torch.inference_mode():
            waves = self._torch.from_numpy(np.ascontiguousarray(audio))[None]
            self._ecapa(self._features(waves))
            embedded_s = time.perf_counter()
            prompt = self._tokenizer.apply_chat_template(
                [{"role": "system", "content": self._system_prompt}, {"role": "user", "content": transcript}],
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
            written = self._model.generate(**prompt, max_new_tokens=48, do_sample=False)
        text = self._tokenizer.decode(written[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        return PlainTiming(
            transcribed_s - start_s, embedded_s - transcribed_s, time.perf_counter() - embedded_s, endpoint_s, text
        )


def _ecapa() -> tuple[Any, Any]:
    """ECAPA-TDNN with the layers of ``speechbrain/spkrec-ecapa-voxceleb``, random weights, and its features."""
    from speechbrain.lobes.features import Fbank
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    network = ECAPA_TDNN(
        80,
        channels=[1024, 1024, 1024, 1024, 3072],
        kernel_sizes=[5, 3, 3, 3, 1],
        dilations=[1, 2, 3, 4, 1],
        attention_channels=128,
        lin_neurons=192,
    ).eval()
    return network, Fbank(n_mels=80)
