"""Processors for sound and text alone: the omni classes also see, and would need vision packages only to be built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from models.audio_llm.loading import transformers_class
from models.store_errors import ModelError, ModelFault


def whole_processor(class_name: str, folder: Path) -> Any:
    """A processor that only hears and reads, as its checkpoint describes it.

    Raises:
        ModelError: when the class is missing or a file is.
    """
    try:
        return transformers_class(class_name).from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error) from error


def whisper_extractor(folder: Path) -> Any:
    """The feature extractor of a Whisper encoder, as the checkpoint describes it."""
    return transformers_class("WhisperFeatureExtractor").from_pretrained(folder, local_files_only=True)


def parakeet_extractor(folder: Path) -> Any:
    """The feature extractor of a Parakeet encoder, with as many mel bands as the network hears."""
    bands = transformers_class("AutoConfig").from_pretrained(folder, local_files_only=True).audio_config.num_mel_bins
    extractor = transformers_class("ParakeetFeatureExtractor")
    made = extractor.from_pretrained(folder, local_files_only=True)
    # A checkpoint whose preprocessor file is about images alone leaves the extractor at its defaults.
    return made if made.feature_size == bands else extractor(feature_size=bands)


def sightless_processor(class_name: str, folder: Path, make_extractor: Callable[[Path], Any]) -> Any:
    """An omni processor without eyes.

    Args:
        class_name: the processor.
        folder: the checkpoint.
        make_extractor: makes the feature extractor for sound from the folder.

    Raises:
        ModelError: when a class is missing or a file is.
    """
    try:
        settings, _ = transformers_class(class_name).get_processor_dict(folder, local_files_only=True)
        tokenizer = transformers_class("AutoTokenizer").from_pretrained(folder, local_files_only=True)
        extractor = make_extractor(folder)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error) from error
    template = settings.get("chat_template") or tokenizer.chat_template
    if template is None:
        raise _unreadable(folder, "no chat template")
    return without_eyes(class_name, tokenizer, extractor, template)


def without_eyes(class_name: str, tokenizer: Any, extractor: Any, template: str) -> Any:
    """An omni processor made of a tokenizer, a feature extractor and a chat template."""
    base = transformers_class(class_name)
    # Checks of the vision parts' classes need packages for vision; there are no such parts here.
    blind = type(
        f"{class_name}WithoutEyes",
        (base,),
        {"check_argument_for_proper_class": lambda self, name, argument: type(argument)},
    )
    eyes = SimpleNamespace(model_input_names=[])
    return blind(
        image_processor=eyes,
        video_processor=eyes,
        tokenizer=tokenizer,
        feature_extractor=extractor,
        chat_template=template,
    )


def _unreadable(folder: Path, why: object) -> ModelError:
    return ModelError(ModelFault.MISSING, f"no processor can be made from {folder}: {why}", "Fetch the model again")
