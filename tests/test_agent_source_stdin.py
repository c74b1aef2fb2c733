"""Raw PCM from a pipe: nothing is lost, nothing is guessed, and a silent writer holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.frames import Frame
from agent.source_stdin import SampleFormat, StdinSource
from agent.sources import ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice
from tests.make_bad_wavs import integers, interleaved, make_files, voice


@contextlib.contextmanager
def piped(data: bytes, chunk: int = 4_096) -> Iterator[int]:
    """A descriptor from which that data comes, in chunks, and then the end."""
    read, write = os.pipe()

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(write, "wb", buffering=0) as file:
            for start in range(0, len(data), chunk):
                file.write(data[start : start + chunk])

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield read
    finally:
        for reader in readers():  # a thread that still reads would take bytes from the next pipe of the same number
            reader.join(5.0)
        os.close(read)
        thread.join(5.0)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "standard input"]


async def play(source: StdinSource) -> list[SourceItem]:
    await source.open()
    try:
        return [item async for item in source]
    finally:
        await source.aclose()


def heard(items: list[SourceItem]) -> np.ndarray:
    frames = [item for item in items if isinstance(item, Frame)]
    sound = np.concatenate([frame.samples for frame in frames])
    return sound[: len(sound) - frames[-1].padded_samples]


def notices(items: list[SourceItem]) -> dict[NoticeCode, SourceNotice]:
    return {item.code: item for item in items if isinstance(item, SourceNotice)}


@pytest.mark.parametrize("chunk", [1_000, 4_097, 65_536])
async def test_16_bit_samples_come_through_bit_for_bit_however_the_pipe_cuts_them(chunk: int) -> None:
    data = integers(voice(), 16)
    with piped(data, chunk) as descriptor:
        items = await play(StdinSource(descriptor=descriptor))
    assert np.array_equal(heard(items), np.frombuffer(data, "<i2") / np.float32(32_768))
    assert not notices(items)


async def test_floats_two_channels_and_another_rate_are_read_as_stated() -> None:
    sound = voice(48_000).astype("<f4")
    with piped(interleaved(sound, sound).astype("<f4").tobytes(), 1_001) as descriptor:
        source = StdinSource(SampleFormat.F32LE, 48_000, 2, descriptor=descriptor)
        items = await play(source)
    assert len(heard(items)) == 16_000
    assert np.corrcoef(heard(items), voice())[0, 1] > 0.999
    assert source.describe["channel_rule"] == "mean of 2 channels"


async def test_the_channel_rule_holds_for_pipes_too() -> None:
    data = integers(interleaved(np.zeros(16_000), voice()), 16)
    with piped(data) as descriptor:
        source = StdinSource(channels=2, descriptor=descriptor)
        items = await play(source)
    assert "channel 1" in notices(items)[NoticeCode.CHANNELS].message
    assert "channel 1" in str(source.describe["channel_rule"])
    with piped(data) as descriptor:
        assert not heard(await play(StdinSource(channels=2, channel=0, descriptor=descriptor))).any()


@pytest.mark.parametrize(("rest", "channels"), [(1, 1), (1, 2), (3, 2)])
async def test_half_a_sample_at_the_end_is_left_out_and_said(rest: int, channels: int) -> None:
    data = integers(voice(), 16)
    with piped(data + b"\x7f" * rest, 777) as descriptor:
        items = await play(StdinSource(channels=channels, descriptor=descriptor))
    assert len(heard(items)) == 16_000 // channels
    assert notices(items)[NoticeCode.TRUNCATED].numbers == {"bytes": rest}


@pytest.mark.parametrize("data", [b"", b"\x01"])
async def test_an_empty_pipe_is_no_audio_and_not_a_silent_mute(data: bytes) -> None:
    with piped(data) as descriptor:
        items = await play(StdinSource(descriptor=descriptor))
    assert NoticeCode.NO_AUDIO in notices(items)
    assert not any(isinstance(item, Frame) for item in items)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a01_plain", "begins with a file header \\(WAV\\)"),
        ("e08_rifx", "begins with a file header \\(WAV\\)"),
        ("e09_mp3", "begins with a file header \\(MP3\\)"),
        ("e10_html", "no raw PCM: an HTML page"),
        ("e11_lfs_pointer", "no raw PCM: a Git LFS pointer"),
    ],
)
async def test_a_file_in_the_pipe_is_refused_because_its_header_would_be_played(name: str, message: str) -> None:
    with piped(make_files()[name]) as descriptor, pytest.raises(SourceError, match=message) as caught:
        await play(StdinSource(descriptor=descriptor))
    assert caught.value.code is ErrorCode.WRONG_KIND


async def test_a_recorder_that_starts_with_digital_silence_is_not_taken_for_a_failed_copy() -> None:
    samples = np.zeros(4_000, np.int16)
    samples[1_000:] = 1_000  # in the same chunk as the zeros
    with piped(samples.tobytes(), chunk=8_000) as descriptor:
        items = await play(StdinSource(descriptor=descriptor))
    assert len(heard(items)) == 4_000


async def test_integers_read_as_floats_are_refused_with_the_cure() -> None:
    message = "another sample format than stated"
    with piped(integers(voice(peak=0.9), 16)) as descriptor, pytest.raises(SourceError, match=message) as caught:
        await play(StdinSource(SampleFormat.F32LE, descriptor=descriptor))
    assert caught.value.code is ErrorCode.OVER_RANGE


async def test_telephone_audio_is_flagged_narrow_band() -> None:
    with piped(integers(voice(8_000), 16)) as descriptor:
        items = await play(StdinSource("s16le", rate_hz=8_000, descriptor=descriptor))
    assert NoticeCode.NARROW_BAND in notices(items)
    assert len(heard(items)) == 16_000


async def test_a_regular_file_as_standard_input_works(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(integers(voice(), 16))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert len(heard(await play(StdinSource(descriptor=descriptor)))) == 16_000
    finally:
        os.close(descriptor)


async def test_a_writer_that_pauses_does_not_hold_up_the_loop_and_closing_ends_the_wait() -> None:
    read, write = os.pipe()
    try:
        os.write(write, integers(voice(), 16))
        source = StdinSource(descriptor=read)
        await source.open()
        items: list[SourceItem] = []

        async def listen() -> None:
            async for item in source:
                items.append(item)

        listening = asyncio.create_task(listen())
        ticks = 0
        while len(items) < 50:
            await asyncio.sleep(0.001)
            ticks += 1
            assert ticks < 2_000
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert not listening.done()
        await source.aclose()
        await asyncio.wait_for(listening, 1.0)
    finally:
        os.close(write)
        for reader in readers():
            await asyncio.to_thread(reader.join, 5.0)
        os.close(read)


async def test_a_loop_that_falls_behind_holds_the_writer_back_and_loses_nothing() -> None:
    sound = integers(np.tile(voice(), 40), 16)
    with piped(sound, 65_536) as descriptor:
        source = StdinSource(descriptor=descriptor)
        await source.open()
        await asyncio.sleep(0.05)
        assert source._reader is not None
        assert sum(map(len, source._reader._chunks)) <= 4 * 65_536 < len(sound)
        items = [item async for item in source]
        await source.aclose()
    assert np.array_equal(heard(items), np.frombuffer(sound, "<i2") / np.float32(32_768))


async def test_closing_while_the_reader_waits_for_room_lets_it_end() -> None:
    with piped(bytes(2_000_000), 65_536) as descriptor:
        source = StdinSource(descriptor=descriptor)
        await source.open()
        await asyncio.sleep(0.02)
        await source.aclose()
        assert [item for item in [item async for item in source] if isinstance(item, Frame)] == []
        for reader in readers():
            await asyncio.to_thread(reader.join, 5.0)
        assert not readers()
    await source.aclose()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sample_format": "s24le"}, ErrorCode.BAD_OPTION),
        ({"rate_hz": 0}, ErrorCode.BAD_OPTION),
        ({"rate_hz": 1_000_000}, ErrorCode.BAD_OPTION),
        ({"channels": 0}, ErrorCode.BAD_OPTION),
        ({"channels": 65}, ErrorCode.BAD_OPTION),
        ({"channels": 2, "channel": 2}, ErrorCode.NO_SUCH_CHANNEL),
        ({"channel": -1}, ErrorCode.NO_SUCH_CHANNEL),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(options: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(
        SourceError, match="|".join(key.removesuffix("_hz").replace("_", " ") for key in options)
    ) as caught:
        StdinSource(**options)
    assert caught.value.code is code


async def test_a_terminal_is_refused_with_a_line_to_copy() -> None:
    master, terminal = os.openpty()
    try:
        with pytest.raises(SourceError, match=r"terminal; pipe raw PCM.*arecord") as caught:
            await StdinSource(descriptor=terminal).open()
        assert caught.value.code is ErrorCode.IS_TERMINAL
    finally:
        os.close(master)
        os.close(terminal)


async def test_a_closed_or_broken_descriptor_is_an_error_and_no_end_of_speech(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    with pytest.raises(SourceError, match="closed"):
        await StdinSource(descriptor=read).open()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(SourceError, match="cannot be read") as caught:
            await play(StdinSource(descriptor=folder))
        assert caught.value.code is ErrorCode.UNREADABLE
    finally:
        os.close(folder)


async def test_iterating_an_unopened_pipe_is_a_programming_error() -> None:
    with pytest.raises(RuntimeError, match="open"):
        await anext(aiter(StdinSource()))


def test_samples_that_come_after_the_loop_is_gone_raise_nowhere() -> None:
    read, write = os.pipe()

    async def open_only() -> StdinSource:
        source = StdinSource(descriptor=read)
        await source.open()
        return source

    source = asyncio.run(open_only())
    (thread,) = readers()
    os.write(write, b"\0" * 640)
    os.close(write)
    thread.join(5.0)
    assert not thread.is_alive()
    os.close(read)
    asyncio.run(source.aclose())


def test_a_program_ends_although_its_pipe_is_silent_for_ever() -> None:
    """The reading thread sits in a read that never returns; the interpreter must not wait for it."""
    program = (
        "import asyncio\n"
        "from agent.source_stdin import StdinSource\n"
        "async def main():\n"
        "    source = StdinSource()\n"
        "    await source.open()\n"
        "    listening = asyncio.create_task(anext(aiter(source)))\n"
        "    await asyncio.sleep(0.05)\n"
        "    await source.aclose()\n"
        "    listening.cancel()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == b""
    finally:
        process.stdin.close()
        process.stderr.close()
