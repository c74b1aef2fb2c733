"""Downloads: one HTTP client with resume, streamed hashing and errors that say what to do."""

from __future__ import annotations

import hashlib
import os
import queue
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import httpx

from models.store_errors import ModelError, ModelFault, writing
from models.store_files import chunks, write_chunk
from models.store_progress import PullProgress, megabytes

CONNECT_TIMEOUT_S = 4.0
"""How long name resolution, TCP and TLS together may take before the network counts as absent."""
READ_TIMEOUT_S = 30.0
"""How long an open connection may stay silent."""
ATTEMPTS_WITHOUT_PROGRESS = 2
"""A cut transfer is resumed at once for as long as each attempt brings bytes; this many in a row may bring none."""

CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class DirectRouteError(Exception):
    """This client cannot be served (credentials, certificates), but the registry's own client perhaps can."""


def shown(url: str | httpx.URL) -> str:
    """An address without the credentials that it may carry, for messages."""
    parsed = httpx.URL(url)
    return str(parsed.copy_with(userinfo=b"", query=None, fragment=None))


def _no_network(what: str, url: str, why: str) -> ModelError:
    return ModelError(
        ModelFault.NO_NETWORK,
        f"could not fetch {what} from {httpx.URL(url).host or shown(url)}: {why}",
        "Check the network and proxy settings, or copy a complete cache here and set VOICEGATE_MODELS to it",
    )


def offline_error(what: str) -> ModelError:
    """The error for a download that the offline setting forbids."""
    return ModelError(
        ModelFault.OFFLINE,
        f"{what} is needed and downloads are switched off",
        "Pull once without --offline and with VOICEGATE_OFFLINE unset, or copy a complete cache here",
    )


class Downloader:
    """An HTTP client for the length of one pull. Use as a context manager, from one thread.

    Proxies are the environment's (``HTTPS_PROXY`` and so on) unless one is given; certificates those of ``PIP_CERT``,
    ``SSL_CERT_FILE`` or ``REQUESTS_CA_BUNDLE``, else the client's own set.

    Args:
        proxy: address of a proxy that overrides the environment's.
        certificates: a bundle file that overrides the environment's.
    """

    def __init__(self, proxy: str | None = None, certificates: str | None = None) -> None:
        bundle = certificates or next(filter(None, map(os.environ.get, CERTIFICATE_VARIABLES)), None)
        try:
            verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=bundle) if bundle else True
        except OSError as error:
            raise ModelError(
                ModelFault.NO_NETWORK,
                f"the certificate bundle {bundle} cannot be read ({error})",
                f"Correct the variable that names it: one of {', '.join(CERTIFICATE_VARIABLES)}",
            ) from error
        self._client = httpx.Client(
            verify=verify,
            proxy=proxy,
            follow_redirects=True,
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            headers={"User-Agent": "voicegate-models"},
        )

    def __enter__(self) -> Downloader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def _open(self, url: str, headers: Mapping[str, str], what: str) -> httpx.Response:
        """Send a GET and return once the status line is there, the body unread.

        The client's own time-out does not bound name resolution, which on a machine without a network can hang for
        half a minute. So the request is sent from a thread, and given up if no connection stands in time; once one
        stands, the answer may take as long as the read time-out allows.
        """
        connected = threading.Event()
        answer: queue.SimpleQueue[httpx.Response | Exception] = queue.SimpleQueue()

        def trace(event: str, _: Mapping[str, object]) -> None:
            if event.endswith("send_request_headers.started"):
                connected.set()

        request = self._client.build_request("GET", url, headers=dict(headers), extensions={"trace": trace})

        def send() -> None:
            try:
                answer.put(self._client.send(request, stream=True))
            except Exception as error:
                answer.put(error)
            connected.set()

        threading.Thread(target=send, name="voicegate-fetch", daemon=True).start()
        if not connected.wait(CONNECT_TIMEOUT_S):
            raise _no_network(what, url, f"no connection within {CONNECT_TIMEOUT_S:.0f} s")
        got = answer.get()
        if isinstance(got, httpx.ConnectError) and "certificate" in str(got).lower():
            raise DirectRouteError(f"{shown(url)}: {got}") from got
        if isinstance(got, httpx.TransportError):
            raise _no_network(what, url, str(got) or type(got).__name__) from got
        if isinstance(got, Exception):
            raise got
        if got.status_code in (401, 403, 407):
            got.close()
            raise DirectRouteError(f"{shown(url)}: HTTP status {got.status_code}")
        return got

    def get(self, url: str, what: str, accept: str) -> tuple[bytes, str, str] | None:
        """A small document, or None where the server has none (404, 410).

        Args:
            url: its address.
            what: what it is wanted for, for messages: the file that could not be had without it.
            accept: media types for the ``Accept`` header.

        Returns:
            Body, media type, and the address after redirects.

        Raises:
            ModelError: ``NO_NETWORK``.
            DirectRouteError: the server wants credentials, or its certificate is not accepted.
        """
        response = self._open(url, {"Accept": accept}, what)
        try:
            if response.status_code in (404, 410):
                return None
            if not response.is_success:
                raise _no_network(what, url, f"HTTP status {response.status_code}")
            body = response.read()
        except httpx.TransportError as error:
            raise _no_network(what, url, str(error) or type(error).__name__) from error
        finally:
            response.close()
        return body, response.headers.get("content-type", "").partition(";")[0].strip().lower(), str(response.url)

    def download(self, url: str, target: Path, sha256: str | None, label: str, progress: PullProgress) -> None:
        """Fetch one large file to ``target``, or leave nothing there.

        Bytes gather in ``target`` + ``.part``, which a later call resumes. A part is only ever resumed when the whole
        file's hash is known, because that hash is what shows whether the two halves belong together.

        Args:
            url: its address.
            target: the final path, on a directory that exists; it appears by one rename.
            sha256: what the whole must be, or None when nobody has said.
            label: what a person calls it.
            progress: told of bytes as they are on disk.

        Raises:
            ModelError: ``NO_NETWORK``, ``NOT_PUBLISHED``, ``TRUNCATED``, ``HASH_MISMATCH``, ``DISK_FULL`` or
                ``READ_ONLY_CACHE``. On ``DISK_FULL`` and ``HASH_MISMATCH`` the part is deleted.
            DirectRouteError: as for ``get``.
        """
        part = target.with_name(target.name + ".part")
        if sha256 is None:
            part.unlink(missing_ok=True)
        resumed = part.exists()
        fruitless = 0
        while True:
            before_bytes = part.stat().st_size if part.exists() else 0
            try:
                digest, announced = self._attempt(url, part, label, progress)
            except ModelError as error:
                if error.code is ModelFault.DISK_FULL:
                    part.unlink(missing_ok=True)
                raise
            have_bytes = part.stat().st_size
            if announced is not None and have_bytes < announced:
                fruitless = 0 if have_bytes > before_bytes else fruitless + 1
                if fruitless >= ATTEMPTS_WITHOUT_PROGRESS or sha256 is None:
                    raise ModelError(
                        ModelFault.TRUNCATED,
                        f"{target.name}: the connection was cut after {megabytes(have_bytes)} of"
                        f" {megabytes(announced)}",
                        "Pull again: it goes on from there"
                        if sha256
                        else "Pull again: it starts anew, since no hash is known to join the halves by",
                    )
                resumed = True
                continue
            if sha256 is None or digest == sha256:
                with writing(target):
                    os.replace(part, target)
                return
            part.unlink()
            if not resumed:
                raise ModelError(
                    ModelFault.HASH_MISMATCH,
                    f"{target.name} from {shown(url)} has sha256 {digest[:12]}…, expected {sha256[:12]}…",
                    "It was deleted. The index or a proxy serves another file: pull again, or correct the index",
                )
            resumed = False  # the old part may have been of another file: once more, from the start
            progress.note(f"{label}: the resumed file is not the expected one; starting anew")

    def _attempt(self, url: str, part: Path, label: str, progress: PullProgress) -> tuple[str, int | None]:
        """One request for what ``part`` lacks. Returns its whole sha256 and the announced whole size, if any."""
        digest = hashlib.sha256()
        have_bytes = 0
        if part.exists():
            with part.open("rb") as old:
                for chunk in chunks(old):
                    digest.update(chunk)
                    have_bytes += len(chunk)
        headers = {"Accept-Encoding": "identity"}
        if have_bytes:
            headers["Range"] = f"bytes={have_bytes}-"
        response = self._open(url, headers, label)
        try:
            if response.status_code == 416:  # nothing lies beyond what we have
                return digest.hexdigest(), None
            if response.status_code in (404, 410):
                raise ModelError(
                    ModelFault.NOT_PUBLISHED,
                    f"{label} is no longer at {shown(url)}",
                    "The index is out of date, or the file was withdrawn: update voicegate or use another index",
                )
            if not response.is_success:
                raise _no_network(label, url, f"HTTP status {response.status_code}")
            length = response.headers.get("content-length")
            remaining = int(length) if length and length.isdecimal() else None
            if response.status_code != 206 or not response.headers.get("content-range", "").startswith(
                f"bytes {have_bytes}-"
            ):
                digest, have_bytes = hashlib.sha256(), 0  # the server sends the whole
            total = have_bytes + remaining if remaining is not None else None
            progress.begin(label, total)
            try:
                progress.advance(have_bytes)
                with writing(part), part.open("r+b" if have_bytes else "wb") as handle:
                    handle.seek(have_bytes)
                    try:
                        for chunk in response.iter_raw():  # as they come: gathering would lose what came before a cut
                            write_chunk(handle, chunk)
                            digest.update(chunk)
                            progress.advance(len(chunk))
                    except httpx.TransportError as error:
                        if total is None:
                            raise _no_network(label, url, str(error) or type(error).__name__) from error
                        # The caller sees the shortfall and resumes.
            finally:
                progress.end()
            return digest.hexdigest(), total
        finally:
            response.close()
