"""What each policy of the registry is, needs and takes: one row a policy. A test holds the rows to the code.

Memory is that of the weights in bfloat16 as the model cards state it; of what is embedded, what the process grew by
when it was loaded with the ten tools. What nobody has stated or measured is None. What depends on this machine is not
here (``models.policy_ready``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from models.audio_llm import audio_flamingo3, embedded_chat, nemotron_omni, qwen2_audio, qwen3_omni, qwen25_omni
from models.audio_llm.adaptations.aura import Aura
from models.audio_llm.adaptations.shanks import Shanks
from models.audio_llm.adaptations.tws import SPEAKER as VOICE_MODEL
from models.audio_llm.adaptations.tws import Tws
from models.audio_llm.server_presets import GEMINI, PRESETS, Preset
from models.policy_mini import MODEL_NAME as MINI_MODEL
from models.policy_smollm2 import MODEL_NAME as SMOLLM2_MODEL


class Runs(StrEnum):
    """Where a policy's network computes."""

    CPU = "in this process, on the CPU"
    GPU = "in this process, on a GPU"
    SERVER = "on a server of yours"
    PROVIDER = "at a provider"
    WORKER = "in a process with an environment of its own"
    AROUND = "around another policy"


@dataclass(frozen=True, slots=True)
class PolicyNeeds:
    """One policy.

    Attributes:
        what: what it is, in a line.
        runs: where.
        page: its page in ``docs/``.
        memory_gb: what it takes where it runs, in gigabytes; None where that is not known.
        hardware: what it is meant to run on, or empty where nothing special.
        options: the options that may stand behind its name, in the order in which they are read.
        required: those without which it does not start.
        models: what it loads from the model store.
        checkpoint: what it loads from the hub's cache, or empty.
        keys: variables of the environment of which one holds its key; empty where it takes none.
        needs_key: whether it does not start without one.
        server: the address that is asked unless an option says otherwise, or empty.
        python: the variable that names the Python of its own environment, or empty.
        extra: what must be installed besides, or empty.
    """

    what: str
    runs: Runs
    page: str
    memory_gb: float | None = None
    hardware: str = ""
    options: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    checkpoint: str = ""
    keys: tuple[str, ...] = ()
    needs_key: bool = False
    server: str = ""
    python: str = ""
    extra: str = ""


_HERE = "audio-llms.md"
_ELSEWHERE = "audio-llm-servers.md"
_EMBEDDED = "policies.md"
_ONE_24_GB = "one GPU of 24 GB"
_ONE_80_GB = "one GPU of 80 GB, or several with device=all"
_NATIVE_OPTIONS = (
    "thinking", "repo", "dir", "download", "dtype", "device", "quant", "dialects", "told", "tokens",
)  # fmt: skip
_SERVER_OPTIONS = (
    "usd_text_in", "usd_audio_in", "usd_out", "parts", "per_minute", "base_url", "timeout_s", "retries", "stream",
    "budget_usd", "told", "dialects", "tokens",
)  # fmt: skip
_OPENAI_OPTIONS = ("enable_thinking", "model", "audio", *_SERVER_OPTIONS)
_CHAT_OPTIONS = ("told", "tokens")
_WORKER_OPTIONS = ("python", "model", "device", "log", "timeout_s", "load_timeout_s", "told", "dialects", "tokens")


def _native(what: str, checkpoint: str, memory_gb: float, hardware: str, extra: str = "") -> PolicyNeeds:
    return PolicyNeeds(
        what, Runs.GPU, _HERE, memory_gb, hardware, _NATIVE_OPTIONS, checkpoint=checkpoint,
        extra=", ".join(filter(None, ("accelerate for device=all and quant, bitsandbytes for quant", extra))),
    )  # fmt: skip


def _served(
    what: str, preset: Preset, memory_gb: float | None, hardware: str, options: tuple[str, ...] = _OPENAI_OPTIONS,
    required: tuple[str, ...] = (),
) -> PolicyNeeds:  # fmt: skip
    return PolicyNeeds(
        what, Runs.PROVIDER if preset.needs_key else Runs.SERVER, _ELSEWHERE, memory_gb, hardware, options, required,
        keys=preset.keys, needs_key=preset.needs_key, server=preset.base_url,
    )  # fmt: skip


def _worker(what: str, memory_gb: float | None, python: str, extra: str) -> PolicyNeeds:
    return PolicyNeeds(
        what, Runs.WORKER, _ELSEWHERE, memory_gb, _ONE_24_GB, _WORKER_OPTIONS, python=python, extra=extra
    )


def _adaptation(what: str, memory_gb: float, *models: str) -> PolicyNeeds:
    return PolicyNeeds(
        f"{what}, around the embedded chat or backend=POLICY", Runs.AROUND, _EMBEDDED, memory_gb,
        options=("backend", *_CHAT_OPTIONS), models=(embedded_chat.MODEL_NAME, *models),
    )  # fmt: skip


NEEDS: Final[Mapping[str, PolicyNeeds]] = {
    "voxgate-mini": PolicyNeeds(
        "SmolLM2-135M-Instruct, trained for this task (docs/training.md)", Runs.CPU, _EMBEDDED, 0.4,
        models=(MINI_MODEL,),
    ),
    "smollm2": PolicyNeeds(
        "SmolLM2-135M-Instruct as published, with a classifier over its states", Runs.CPU, _EMBEDDED, 0.4,
        models=(SMOLLM2_MODEL,),
    ),
    embedded_chat.NAME: PolicyNeeds(
        "SmolLM2-135M-Instruct as a chat, told the action contract", Runs.CPU, _EMBEDDED, 0.4, options=_CHAT_OPTIONS,
        models=(embedded_chat.MODEL_NAME,),
    ),
    Aura.name: _adaptation("AURA: says who spoke and to whom, then acts", 0.5),
    Tws.name: _adaptation("TwS: measures the sound with tools before it acts", 0.5, VOICE_MODEL),
    Shanks.name: _adaptation("SHANKS: takes notes while somebody speaks", 0.6, "whisper-base"),
    "qwen2-audio": _native("Qwen2-Audio-7B-Instruct", qwen2_audio.REPO, 17.0, _ONE_24_GB),
    "qwen2.5-omni": _native("the thinker of Qwen2.5-Omni-7B", qwen25_omni.REPO, 18.0, _ONE_24_GB),
    "qwen3-omni": _native("the thinker of Qwen3-Omni-30B-A3B", qwen3_omni.REPO, 64.0, _ONE_80_GB),
    "audio-flamingo-3": _native("Audio Flamingo 3", audio_flamingo3.REPO, 17.0, _ONE_24_GB),
    "nemotron-omni": _native(
        "Nemotron-3-Nano-Omni-30B-A3B", nemotron_omni.REPO, 62.0, _ONE_80_GB, "mamba-ssm and causal-conv1d for speed"
    ),
    "gpt-4o-audio": _served("GPT-4o audio, at OpenAI", PRESETS["gpt-4o-audio"], None, ""),
    "gemini": _served("Gemini, at Google", GEMINI, None, "", ("model", "thinking_tokens", *_SERVER_OPTIONS)),
    "vllm": _served(
        "Qwen3-Omni, Audio Flamingo 3 or Kimi-Audio behind vLLM", PRESETS["vllm-qwen3-omni"], 64.0,
        "one GPU of 80 GB (preset=af3, kimi-audio: 17 and 20 GB, one GPU of 24 GB)", ("preset", *_OPENAI_OPTIONS),
    ),
    "step-audio": _served(
        "Step-Audio-R1.1 behind StepFun's vLLM", PRESETS["step-audio-r1.1"], None, "four GPUs of 48 GB"
    ),
    "kimi-audio": _served("Kimi-Audio-7B behind vLLM", PRESETS["vllm-kimi-audio"], 20.0, _ONE_24_GB),
    "openai-compatible": _served(
        "any model behind OpenAI's chat completions", PRESETS["openai-compatible"], None, "",
        required=("base_url", "model"),
    ),
    "desta": _worker("DeSTA2.5-Audio", 20.0, "VOICEGATE_DESTA_PYTHON", "the package desta, in that environment"),
    "baichuan-omni": _worker(
        "Baichuan-Omni-1.5", None, "VOICEGATE_BAICHUAN_PYTHON", "the model's own requirements, in that environment"
    ),
}  # fmt: skip
"""By the policy's name in ``models.components.POLICIES``."""
