"""Options of models in a process of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from models.audio_llm.conversation import Limits
from models.audio_llm.options import Options, OptionsError
from models.audio_llm.server_options import number
from models.audio_llm.subprocess_chat import SubprocessChat
from models.protocols import ModelId

_PACKAGE = "models.audio_llm.remote_workers"


def worker_chat(
    program: str, served: str, limits: Limits, variable: str, options: Options, environ: Mapping[str, str]
) -> SubprocessChat:
    """A model in a process of its own.

    Args:
        program: the worker's module.
        served: its model, unless another one is asked for.
        limits: what that takes.
        variable: names the Python of its environment, where no option does.
        options: what was given.
        environ: the process's environment.

    Raises:
        OptionsError: when its Python is not named, or a value is none.
    """
    interpreter = options.text("python", environ.get(variable, "").strip())
    if not interpreter:
        raise OptionsError(f"{program} runs in an environment of its own: set {variable} to its Python, or python=PATH")
    model, device, log = options.text("model", served), options.text("device"), options.text("log")
    command = [interpreter, "-m", f"{_PACKAGE}.{program}"]
    command += ["--model", model] if model != served else []
    command += ["--device", device] if device else []
    # Whatever the process loads cannot be hashed from here; what it was asked to load can be named.
    identity = ModelId(f"{program}/{model}", hashlib.sha256(f"{program} {model}".encode()).hexdigest())
    return SubprocessChat(
        command, model, identity, limits, environ=environ, log=Path(log).expanduser() if log else None,
        timeout_s=number(options, "timeout_s", 120.0), load_timeout_s=number(options, "load_timeout_s", 900.0),
    )  # fmt: skip
