"""Options of models behind servers. Keys are read from the environment, and from nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from models.audio_llm.endpoint import AddressError, Endpoint
from models.audio_llm.endpoint_costs import Budget, Prices
from models.audio_llm.endpoint_key import Key, key_from, required_key
from models.audio_llm.endpoint_pace import Pace
from models.audio_llm.options import Options, OptionsError
from models.audio_llm.server_chat import ServerChat
from models.audio_llm.server_presets import GEMINI, PRESETS, Preset
from models.audio_llm.wire_format import WireFormat
from models.audio_llm.wire_gemini import GeminiFormat
from models.audio_llm.wire_openai import AudioAs, OpenAiFormat

_UNSAID = "unsaid"


def openai_chat(preset_name: str, options: Options, environ: Mapping[str, str]) -> ServerChat:
    """A model behind a server that speaks OpenAI's chat completions.

    Raises:
        OptionsError: when a value is none.
        BackendError: NO_KEY when a key is needed and the environment holds none.
    """
    preset = PRESETS[preset_name]
    more = dict(preset.more)
    thinks = options.choice("enable_thinking", ("on", "off", _UNSAID), _UNSAID)
    if thinks != _UNSAID:
        more["chat_template_kwargs"] = {"enable_thinking": thinks == "on"}
    model = _model(options, preset.model)
    wire = OpenAiFormat(model, more, AudioAs(options.choice("audio", AudioAs, AudioAs.INPUT_AUDIO)))
    return _chat(f"{preset_name}/{model}", preset, wire, options, environ)


def vllm_chat(options: Options, environ: Mapping[str, str]) -> ServerChat:
    """A model behind vLLM, which one being an option. Raises as ``openai_chat`` does."""
    known = {name.removeprefix("vllm-"): name for name in PRESETS if name.startswith("vllm-")}
    return openai_chat(known[options.choice("preset", known, "qwen3-omni")], options, environ)


def gemini_chat(options: Options, environ: Mapping[str, str]) -> ServerChat:
    """Gemini. Raises as ``openai_chat`` does."""
    model = _model(options, GEMINI.model)
    unsaid = options.text("thinking_tokens") == _UNSAID
    wire = GeminiFormat(model, None if unsaid else int(number(options, "thinking_tokens", 0.0, zero=True)))
    return _chat(f"gemini/{model}", GEMINI, wire, options, environ, header="x-goog-api-key")


def number(options: Options, key: str, default: float, *, zero: bool = False) -> float:
    """A number above 0, or 0 where that means something.

    Raises:
        OptionsError: for anything else.
    """
    text = options.text(key, str(default))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 or (zero and value == 0)):
        raise OptionsError(f"{key}={text}: no such number")
    return value


def _chat(
    name: str, preset: Preset, wire: WireFormat, options: Options, environ: Mapping[str, str],
    header: str = "Authorization",
) -> ServerChat:  # fmt: skip
    key = (required_key if preset.needs_key else key_from)(environ, *preset.keys)
    prices = _prices(options, preset.prices)
    limits = replace(preset.limits, audio_parts=number(options, "parts", preset.limits.audio_parts))
    return ServerChat(
        name, _endpoint(options, preset, key, header), wire, limits, preset.habits,
        streamed=options.is_on("stream", True), prices=prices, budget=_budget(options, prices),
    )  # fmt: skip


def _model(options: Options, default: str) -> str:
    model = options.text("model", default)
    if not model:
        raise OptionsError("name the server's model: model=NAME")
    return model


def _endpoint(options: Options, preset: Preset, key: Key | None, header: str) -> Endpoint:
    per_minute = number(options, "per_minute", math.inf)
    try:
        return Endpoint(
            options.text("base_url", preset.base_url), key, header=header,
            timeout_s=number(options, "timeout_s", preset.timeout_s),
            retries=int(number(options, "retries", 2.0, zero=True)),
            pace=Pace(per_minute) if per_minute < math.inf else None,
        )  # fmt: skip
    except AddressError as error:
        raise OptionsError(f"base_url: {error}; a key belongs into the environment") from None


def _prices(options: Options, prices: Prices | None) -> Prices | None:
    default = prices or Prices(0.0, 0.0, 0.0)
    given = replace(
        default,
        text_in=number(options, "usd_text_in", default.text_in, zero=True),
        audio_in=number(options, "usd_audio_in", default.audio_in, zero=True),
        out=number(options, "usd_out", default.out, zero=True),
    )
    return None if prices is None and given == default else given


def _budget(options: Options, prices: Prices | None) -> Budget:
    limit_usd = number(options, "budget_usd", math.inf, zero=True)
    if limit_usd < math.inf and prices is None:
        raise OptionsError("budget_usd needs prices: usd_text_in, usd_audio_in and usd_out, per million tokens")
    return Budget(limit_usd)
