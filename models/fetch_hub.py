"""Official weights from a Hugging Face hub, through its own client (imported only when a hub model is pulled)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from models.fetch import DirectRouteError, Downloader
from models.registry import HubSpec, ModelSpec
from models.store_errors import ModelError, ModelFault, writing
from models.store_progress import PullProgress


def fetch_files(model: ModelSpec, hub: HubSpec, out_dir: Path, http: Downloader, progress: PullProgress) -> None:
    """Download a hub model's files into ``out_dir``. Hashes are the caller's affair.

    The endpoint and the access token are those of the client's own configuration (``HF_ENDPOINT``, ``HF_TOKEN``).

    Args:
        model: the model; its ``files`` are fetched and nothing else of the repository.
        hub: where from.
        out_dir: an existing, empty directory.
        http: asked first whether the hub can be reached at all, since the hub's client takes long to give up.
        progress: told of each file.

    Raises:
        ModelError: ``NO_NETWORK``, ``NOT_PUBLISHED``, ``DISK_FULL`` or ``READ_ONLY_CACHE``.
    """
    import huggingface_hub
    from huggingface_hub import constants, errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    try:
        http.get(endpoint, "its front page", "*/*")
    except ModelError as error:
        raise _unreachable(model, hub, error.message) from error
    except DirectRouteError as refused:
        progress.note(f"{hub.repository}: {refused}")  # reached, and the hub's client may have the token
    disable_progress_bars()
    scratch = out_dir / ".hub"
    try:
        for file in model.files:
            progress.note(f"{model.name}: fetching {file.name} of {hub.repository}")
            with writing(out_dir):
                got = huggingface_hub.hf_hub_download(
                    hub.repository, file.name, revision=hub.revision, local_dir=scratch, endpoint=endpoint
                )
                target = out_dir / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(got, target)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise _unreachable(model, hub, str(error)) from error
        raise ModelError(
            ModelFault.NOT_PUBLISHED,
            f"{hub.repository} at {hub.revision} does not have {file.name}, or not for this account",
            "If the repository asks for consent, give it on its page and set HF_TOKEN; else update voicegate",
        ) from error
    except ModelError:
        raise
    except Exception as error:  # its HTTP library, and so what it raises, differs between versions of the hub's client
        raise _unreachable(model, hub, str(error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unreachable(model: ModelSpec, hub: HubSpec, why: str) -> ModelError:
    return ModelError(
        ModelFault.NO_NETWORK,
        f"could not fetch {model.files[0].name} of {model.name} from the hub repository {hub.repository}: {why}",
        "Check the network, HF_ENDPOINT and proxy settings, or use a model that comes from a package index",
    )
