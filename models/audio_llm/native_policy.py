"""From a name and its options to a policy: the steps that every network in this process takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.audio_llm.contract import ActionContract
from models.audio_llm.loading import choose_placement, find_folder, identity, load_network, read_options
from models.audio_llm.native import NativeChat
from models.audio_llm.options import OptionsError
from models.audio_llm.policy import AudioLlmPolicy


def load_native(
    name: str,
    repo: str,
    chat_class: type[NativeChat],
    make_processor: Callable[[Path], Any],
    threads: int,
    values: Mapping[str, str] | None,
    *,
    thinking: type[NativeChat] | None = None,
) -> AudioLlmPolicy:
    """Load a policy.

    Args:
        name: in the registry.
        repo: its model's name on the hub.
        chat_class: the backend.
        make_processor: makes the class's processor from the checkpoint's folder.
        threads: CPU threads of torch.
        values: the options that were given.
        thinking: the backend to take where thinking is switched on; None where the model has no such switch.

    Raises:
        OptionsError: for an unknown option or value.
        ModelError: when the model is not here, or does not load; names the cure.
    """
    options = read_options(name, repo, values or {})
    if options.thinking and thinking is None:
        raise OptionsError(f"{name} has no thinking to switch on")
    # Everything that is quickly known to fail comes before the gigabytes.
    placement = choose_placement(options)
    folder = find_folder(name, options)
    processor = make_processor(folder)
    if placement.device == "cpu":
        import torch

        torch.set_num_threads(threads)
    network = load_network(chat_class.network_class, folder, placement)
    used = thinking if options.thinking and thinking is not None else chat_class
    label = options.folder.name if options.folder is not None else options.repo
    chat = used(network, processor, identity(f"{name}/{label}", folder, placement))
    contract = ActionContract(options.told)
    return AudioLlmPolicy(chat, contract, dialects=options.dialects, action_tokens=options.tokens)
