"""An OpenAI-compatible endpoint on this machine that takes a fixed time for each reply, however many are asked for.

It stands for a shared server whose batch is not full, so that the loop is what is measured. Chat completions alone,
in one document, without a model: every reply is the same action.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

REPLY = "[Mute]"
_HEADERS_END = b"\r\n\r\n"


def _answer() -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": REPLY}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 900, "completion_tokens": 3, "total_tokens": 903}
    body = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def serve(service_s: float, ready: Connection) -> None:
    """Serve until the process is ended.

    Args:
        service_s: how long each reply takes, in seconds.
        ready: is sent the port.
    """
    answer = _answer()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(_HEADERS_END)
                await reader.readexactly(_length_of(head))
                await asyncio.sleep(service_s)
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, backlog=1024)
    ready.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def _run(service_s: float, ready: Connection) -> None:
    asyncio.run(serve(service_s, ready))


@contextlib.contextmanager
def endpoint(service_s: float) -> Iterator[str]:
    """The address of an endpoint that runs in a process of its own as long as this is open."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(service_s, there), name="voicegate-endpoint", daemon=True)
    process.start()
    there.close()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.kill()
        process.join()
        here.close()
