"""Recordings: the outcome of every kind of odd or broken file, as a table."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import threading
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soundfile

from agent.frames import Frame, SourceGap
from agent.source_file import FileSource
from agent.source_kinds import has_audio_header, kind_of
from agent.source_wav_header import RepairedWav, read_wav_header
from agent.sources import ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice
from tests.make_bad_wavs import FLOAT, chunk, floats, fmt, integers, interleaved, riff, voice, wav, write_files


@pytest.fixture(scope="module")
def wavs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_files(tmp_path_factory.mktemp("wavs"))


@dataclass
class Heard:
    """What a source yielded."""

    items: list[SourceItem]
    describe: dict[str, object] = field(default_factory=dict)

    @property
    def frames(self) -> list[Frame]:
        return [item for item in self.items if isinstance(item, Frame)]

    @property
    def notices(self) -> dict[NoticeCode, SourceNotice]:
        return {item.code: item for item in self.items if isinstance(item, SourceNotice)}

    @property
    def samples(self) -> np.ndarray:
        if not self.frames:
            return np.zeros(0, np.float32)
        sound = np.concatenate([frame.samples for frame in self.frames])
        return sound[: len(sound) - self.frames[-1].padded_samples]


async def play(path: Path, channel: int | None = None) -> Heard:
    source = FileSource(path, channel=channel)
    try:
        await source.open()
        return Heard([item async for item in source], dict(source.describe))
    finally:
        await source.aclose()


def level_db(samples: np.ndarray) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(samples.astype(np.float64) ** 2))))


N = NoticeCode

# name: samples out (16 kHz), notices, what the description must say. All hold the same second of voice.
GOOD: list[tuple[str, int, set[NoticeCode], dict[str, object]]] = [
    ("a01_plain", 16_000, set(), {"native_rate_hz": 16_000, "narrow_band": False, "subtype": "PCM_16"}),
    ("a02_44k1", 16_000, set(), {"native_rate_hz": 44_100, "narrow_band": False}),
    ("a03_48k_stereo", 16_000, set(), {"native_rate_hz": 48_000, "channel_rule": "mean of 2 channels"}),
    ("a04_8k", 16_000, {N.NARROW_BAND}, {"native_rate_hz": 8_000, "narrow_band": True}),
    ("a05_11k025", 16_000, set(), {"native_rate_hz": 11_025, "narrow_band": False}),
    ("b01_u8", 16_000, set(), {"subtype": "PCM_U8"}),
    ("b02_s24", 16_000, set(), {"subtype": "PCM_24"}),
    ("b03_s32", 16_000, set(), {"subtype": "PCM_32"}),
    ("b04_float", 16_000, set(), {"subtype": "FLOAT"}),
    ("b05_mu_law_8k", 16_000, {N.NARROW_BAND}, {"subtype": "ULAW", "narrow_band": True}),
    ("b06_extensible_s16", 16_000, set(), {"format": "WAVEX"}),
    ("b07_extensible_s24_48k_stereo", 16_000, set(), {"format": "WAVEX", "subtype": "PCM_24"}),
    ("b08_extensible_float", 16_000, set(), {"format": "WAVEX", "subtype": "FLOAT"}),
    ("c01_right_only", 16_000, {N.CHANNELS}, {"channels": 2}),
    ("c02_antiphase", 16_000, {N.CHANNELS}, {"channels": 2}),
    ("c03_first_of_six", 16_000, {N.CHANNELS}, {"channels": 6}),
    ("d09_data_size_zero", 16_000, {N.HEADER_LIES}, {"native_samples": 16_000}),
    ("d10_streamed_sizes", 16_000, {N.HEADER_LIES}, {"duration_s": 1.0}),
    ("d13_one_byte_too_many", 16_000, set(), {}),
    ("e01_odd_tags", 16_000, set(), {}),
    ("e03_tags_at_the_end", 16_000, set(), {}),
    ("e04_garbage_at_the_end", 16_000, {N.TRAILING_BYTES}, {}),
    ("e06_riff_size_of_an_empty_file", 16_000, {N.HEADER_LIES}, {"native_samples": 16_000}),
    ("e14_block_align_lies", 16_000, {N.HEADER_LIES}, {"native_samples": 16_000}),
]


@pytest.mark.parametrize(("name", "count", "codes", "says"), GOOD, ids=[row[0] for row in GOOD])
async def test_the_same_voice_is_heard_at_the_same_level_from_every_kind_of_file_that_can_be_read(
    wavs: dict[str, Path], name: str, count: int, codes: set[NoticeCode], says: dict[str, object]
) -> None:
    heard = await play(wavs[name])
    assert len(heard.samples) == count
    assert set(heard.notices) == codes
    assert heard.describe.items() >= says.items()
    assert level_db(heard.samples) == pytest.approx(level_db(voice()), abs=0.1)
    assert np.corrcoef(heard.samples, voice())[0, 1] > 0.995
    assert [frame.start_sample for frame in heard.frames] == list(range(0, count, 320))


# name: samples out, notices with the figures that a report needs.
DOUBTFUL: list[tuple[str, int, dict[NoticeCode, dict[str, int]]]] = [
    ("d06_zero_samples", 0, {N.NO_AUDIO: {}}),
    ("d07_one_sample", 1, {N.TOO_SHORT: {"samples": 1}}),
    ("d08_nine_ms", 144, {N.TOO_SHORT: {"samples": 144}}),
    ("d11_cut_in_half", 8_000, {N.TRUNCATED: {"samples": 8_000, "claimed_samples": 16_000}}),
    ("d12_cut_in_a_sample", 8_000, {N.TRUNCATED: {"samples": 8_000, "claimed_samples": 16_000}}),
    ("e05_odd_s24", 101, {N.TOO_SHORT: {"samples": 101}}),
    ("e15_says_48k_is_16k", 5_333, {}),
    ("f01_digital_silence", 32_000, {N.DIGITAL_SILENCE: {}}),
    ("f05_peak_2_6", 16_000, {N.OVER_RANGE: {"samples": 940}}),
    ("f07_hard_clipped", 16_000, {}),
    ("f08_dc_half", 16_000, {}),
    ("f09_very_quiet", 16_000, {}),
    ("f10_one_lsb", 32_000, {}),
    ("f11_white_noise", 32_000, {}),
]


@pytest.mark.parametrize(("name", "count", "numbers"), DOUBTFUL, ids=[row[0] for row in DOUBTFUL])
async def test_a_doubtful_file_is_played_as_it_is_and_its_doubt_is_said(
    wavs: dict[str, Path], name: str, count: int, numbers: dict[NoticeCode, dict[str, int]]
) -> None:
    heard = await play(wavs[name])
    assert len(heard.samples) == count
    assert {code: dict(notice.numbers) for code, notice in heard.notices.items()} == numbers
    assert np.isfinite(heard.samples).all()
    assert np.abs(heard.samples).max(initial=0.0) <= 1.0


E = ErrorCode

REFUSED: list[tuple[str, ErrorCode, str]] = [
    ("d01_zero_bytes", E.EMPTY, "empty file"),
    ("d02_riff_only", E.NO_FMT_CHUNK, "no fmt and no data chunk"),
    ("d03_header_cut", E.TRUNCATED_HEADER, "truncated header"),
    ("d04_no_data_chunk", E.NO_DATA_CHUNK, "no data chunk"),
    ("d05_no_fmt_chunk", E.NO_FMT_CHUNK, "no fmt chunk"),
    ("e02_odd_tags_unpadded", E.BROKEN_CHUNKS, "'LIST' chunk has an odd length and no pad byte"),
    ("e07_two_data_chunks", E.TWO_DATA_CHUNKS, "2 data chunks"),
    ("e08_rifx", E.WRONG_KIND, "RIFX"),
    ("e09_mp3", E.WRONG_KIND, "MP3"),
    ("e10_html", E.WRONG_KIND, "HTML page"),
    ("e11_lfs_pointer", E.WRONG_KIND, "Git LFS pointer.*git lfs pull"),
    ("e12_rate_zero", E.BAD_RATE, "0 Hz"),
    ("e13_channels_zero", E.BAD_CHANNELS, "0 channels"),
    ("f02_one_nan", E.NOT_FINITE, r"1 of 16000 samples are not numbers.*at 0\.500 s"),
    ("f03_all_nan", E.NOT_FINITE, "16000 of 16000 samples are not numbers"),
    ("f04_infinity", E.NOT_FINITE, "1 of 16000 samples are not numbers"),
    ("f06_peak_1e37", E.OVER_RANGE, r"e\+36, not in \[-1, 1\]"),
    ("f12_float_in_int16_range", E.OVER_RANGE, r"6551\.64, not in \[-1, 1\]"),
]


@pytest.mark.parametrize(("name", "code", "message"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_broken_file_is_refused_before_its_first_frame_with_its_name_and_the_real_cause(
    wavs: dict[str, Path], name: str, code: ErrorCode, message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        await play(wavs[name])
    assert caught.value.code is code
    assert name in caught.value.message
    assert "\n" not in caught.value.message


def test_the_tables_miss_no_kind_of_file(wavs: dict[str, Path]) -> None:
    assert {row[0] for row in [*GOOD, *DOUBTFUL, *REFUSED]} == set(wavs)


async def test_a_voice_on_the_right_only_keeps_its_level_and_its_channel_is_named(wavs: dict[str, Path]) -> None:
    heard = await play(wavs["c01_right_only"])
    assert heard.describe["channel_rule"] == "channel 1 of 0 to 1: the others are more than 30 dB below"


async def test_channels_in_opposite_phase_never_cancel_unseen(wavs: dict[str, Path]) -> None:
    heard = await play(wavs["c02_antiphase"])
    assert re.search("channel 0 alone.*opposite phase", heard.notices[N.CHANNELS].message)


async def test_a_channel_set_by_hand_overrides_the_rule(wavs: dict[str, Path]) -> None:
    heard = await play(wavs["c01_right_only"], channel=0)
    assert not heard.samples.any()
    assert heard.describe["channel_rule"] == "channel 0 of 0 to 1, set by hand"
    with pytest.raises(SourceError, match="no channel 2; it has 2") as caught:
        await play(wavs["c01_right_only"], channel=2)
    assert caught.value.code is E.NO_SUCH_CHANNEL
    assert np.array_equal((await play(wavs["a01_plain"], channel=0)).samples, (await play(wavs["a01_plain"])).samples)


async def test_a_voice_that_comes_late_on_one_channel_is_judged_by_the_whole_file(tmp_path: Path) -> None:
    quiet, late = np.zeros(160_000), np.concatenate([np.zeros(144_000), voice()])
    path = tmp_path / "late.wav"
    path.write_bytes(wav(interleaved(quiet, late), channels=2))
    heard = await play(path)
    assert "channel 1 of" in str(heard.describe["channel_rule"])
    assert level_db(heard.samples[-16_000:]) == pytest.approx(level_db(voice()), abs=0.1)


async def test_a_long_recording_is_streamed_so_three_hours_do_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    soundfile.write(path, np.tile(voice(48_000).astype(np.float32), 60), 48_000, subtype="PCM_16")
    source = FileSource(path)
    tracemalloc.start()
    try:
        await source.open()
        frames = 0
        async for item in source:
            frames += isinstance(item, Frame)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await source.aclose()
    assert frames == 3_000
    assert peak_bytes < 6_000_000 < 60 * 48_000 * 4


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "AIFF", "MP3", "W64", "RF64", "CAF", "AU"])
async def test_whatever_libsndfile_reads_is_read(tmp_path: Path, kind: str) -> None:
    if kind not in soundfile.available_formats():
        pytest.skip(f"this libsndfile has no {kind}")
    path = tmp_path / f"voice.{kind.lower()}"
    soundfile.write(path, voice(), 16_000, format=kind)
    heard = await play(path)
    assert abs(len(heard.samples) - 16_000) < 1_200  # MP3 and Ogg pad
    assert level_db(heard.samples) == pytest.approx(level_db(voice()), abs=0.5)
    assert heard.describe["format"] == kind


async def test_a_flac_file_cut_short_is_called_truncated(tmp_path: Path) -> None:
    whole = tmp_path / "whole.flac"
    soundfile.write(whole, np.random.default_rng(6).uniform(-0.5, 0.5, 800_000), 16_000)
    cut = tmp_path / "cut.flac"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4])
    heard = await play(cut)
    numbers = heard.notices[N.TRUNCATED].numbers
    assert numbers["claimed_samples"] == 800_000
    assert 0 < numbers["samples"] == len(heard.samples) < 800_000


async def test_a_cut_compressed_wav_is_called_truncated_in_bytes(tmp_path: Path) -> None:
    whole = tmp_path / "whole.wav"
    soundfile.write(whole, voice(), 16_000, subtype="IMA_ADPCM")
    cut = tmp_path / "cut.wav"
    cut.write_bytes(whole.read_bytes()[:4_000])
    notice = (await play(cut)).notices[N.TRUNCATED]
    assert notice.numbers["bytes"] < notice.numbers["claimed_bytes"]


async def test_24_bits_in_32_are_no_lie(tmp_path: Path) -> None:
    path = tmp_path / "s24_in_32.wav"
    path.write_bytes(riff(fmt(bits=24, align=4), chunk(b"data", integers(voice(), 32))))
    heard = await play(path)
    assert np.abs(heard.samples - voice()).max() < 1e-4
    assert not heard.notices


async def test_an_unfinished_recording_is_read_even_when_its_first_samples_look_like_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "unfinished.wav"
    body = b"junk" + b"\xff\x7f\xff\x7f" + integers(voice(), 16)
    path.write_bytes(riff(fmt(), chunk(b"data", body, claimed=0)))
    heard = await play(path)
    assert len(heard.samples) == 16_004
    assert set(heard.notices) == {N.HEADER_LIES}


async def test_a_file_whose_first_block_cannot_be_decoded_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.flac"
    soundfile.write(whole, np.random.default_rng(7).uniform(-0.5, 0.5, 16_000), 16_000)
    content = bytearray(whole.read_bytes())
    content[200:] = bytes(len(content) - 200)
    broken = tmp_path / "broken.flac"
    broken.write_bytes(content)
    with pytest.raises(SourceError, match="cannot be decoded") as caught:
        await play(broken)
    assert caught.value.code is E.UNREADABLE


async def test_a_reader_that_stops_early_is_never_believed_in_silence(
    wavs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSource, "_block_samples", 4_000)
    read_block = FileSource._read_block

    def stop_after_three(self: FileSource, samples: int) -> np.ndarray:
        return read_block(self, 0 if self._file.tell() >= 12_000 else samples)

    monkeypatch.setattr(FileSource, "_read_block", stop_after_three)
    heard = await play(wavs["a01_plain"])
    assert heard.notices[N.TRUNCATED].numbers == {"samples": 12_000, "claimed_samples": 16_000}
    assert len(heard.samples) == 12_000


@pytest.mark.parametrize(
    ("rate_hz", "code"), [(100, E.BAD_RATE), (3_999, E.BAD_RATE), (800_000, E.BAD_RATE), (4_000, None)]
)
async def test_an_absurd_rate_is_refused(tmp_path: Path, rate_hz: int, code: ErrorCode | None) -> None:
    path = tmp_path / "odd_rate.wav"
    path.write_bytes(wav(voice(), rate_hz))
    if code is None:
        assert len((await play(path)).samples) == 64_000
        return
    with pytest.raises(SourceError, match=f"{rate_hz} Hz") as caught:
        await play(path)
    assert caught.value.code is code


async def test_an_unknown_wav_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "odd_tag.wav"
    path.write_bytes(riff(fmt(tag=0x1234), b"data\x04\0\0\0abcd"))
    with pytest.raises(SourceError, match="format that cannot be read") as caught:
        await play(path)
    assert caught.value.code is E.UNREADABLE


async def test_missing_folder_and_pipe_are_named(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    file = tmp_path / "file"
    file.write_bytes(b"x")
    cases = [
        (tmp_path / "missing.wav", E.MISSING, "no such file"),
        (tmp_path, E.NOT_A_FILE, "a folder"),
        (pipe, E.NOT_A_FILE, "not a regular file"),
        (file / "below.wav", E.UNREADABLE, "Not a directory"),
    ]
    for path, code, message in cases:
        with pytest.raises(SourceError, match=message) as caught:
            await play(path)
        assert caught.value.code is code


@pytest.mark.parametrize(
    ("error", "code"), [(PermissionError(13, "denied"), E.NO_PERMISSION), (OSError(5, "I/O error"), E.UNREADABLE)]
)
async def test_a_file_that_may_not_be_read_says_so(
    wavs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, error: OSError, code: ErrorCode
) -> None:
    def refuse(path: Path) -> None:
        raise error

    monkeypatch.setattr("agent.source_file.read_wav_header", refuse)
    with pytest.raises(SourceError) as caught:
        await play(wavs["a01_plain"])
    assert caught.value.code is code


async def test_a_file_that_shrinks_while_it_is_played_is_an_error_and_no_short_verdict(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shrinks.wav"
    path.write_bytes(wav(np.tile(voice(), 60)))
    source = FileSource(path)
    await source.open()
    os.truncate(path, 32_044)
    with pytest.raises(SourceError, match="changed while it was read"):
        async for _ in source:
            pass
    await source.aclose()


async def test_closing_ends_the_iteration_and_a_read_in_flight_is_waited_for(wavs: dict[str, Path]) -> None:
    source = FileSource(wavs["a01_plain"])
    await source.open()
    items = aiter(source)
    await anext(items)
    await asyncio.gather(source.aclose(), source.aclose())
    rest = [item async for item in items]
    assert len(rest) < 50
    assert [item async for item in source] == []


async def test_a_file_is_not_closed_under_a_read_because_that_crashes_the_library(
    wavs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FileSource(wavs["a01_plain"])
    await source.open()
    reading, go_on = threading.Event(), threading.Event()
    was_closed: list[bool] = []
    read_block = FileSource._read_block

    def read_slowly(self: FileSource, samples: int) -> np.ndarray:
        reading.set()
        go_on.wait(5.0)
        was_closed.append(self._file.closed)
        return read_block(self, samples)

    monkeypatch.setattr(FileSource, "_read_block", read_slowly)

    async def listen() -> None:
        async for _ in source:
            pass

    first = asyncio.create_task(listen())
    await asyncio.to_thread(reading.wait, 5.0)
    first.cancel()  # the await ends, the read in its thread does not
    closing = asyncio.create_task(source.aclose())
    await asyncio.sleep(0.02)
    assert not closing.done()
    go_on.set()
    await closing
    assert was_closed == [False]
    assert source._file.closed
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_cancelled_open_stops_measuring_and_lets_go_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long.wav"
    soundfile.write(path, np.zeros(16_000 * 1_200, np.int16), 16_000)
    source = FileSource(path)
    blocks = 0
    measuring = threading.Event()
    read_block = FileSource._read_block

    def count(self: FileSource, samples: int) -> np.ndarray:
        nonlocal blocks
        blocks += 1
        measuring.set()
        return read_block(self, samples)

    monkeypatch.setattr(FileSource, "_read_block", count)
    opening = asyncio.create_task(source.open())
    assert await asyncio.to_thread(measuring.wait, 5.0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert blocks < 16_000 * 1_200 // (1 << 18)
    assert source._file.closed


async def test_iterating_an_unopened_file_is_a_programming_error(wavs: dict[str, Path]) -> None:
    with pytest.raises(RuntimeError, match="open"):
        await anext(aiter(FileSource(wavs["a01_plain"])))


async def test_a_file_yields_no_gaps(wavs: dict[str, Path]) -> None:
    heard = await play(wavs["a02_44k1"])
    assert not any(isinstance(item, SourceGap) for item in heard.items)


def test_the_repair_of_a_header_touches_the_view_and_not_the_file(wavs: dict[str, Path]) -> None:
    path = wavs["d09_data_size_zero"]
    before = path.read_bytes()
    header = read_wav_header(path)
    assert header is not None
    with RepairedWav(path, header) as view:
        assert view.readable()
        assert view.seekable()
        whole = view.read()
        assert whole == wavs["a01_plain"].read_bytes()
        for start in range(0, 48):  # a read may begin in the middle of a patched size
            view.seek(start)
            assert view.read(3) == whole[start : start + 3]
    assert path.read_bytes() == before
    assert stat.S_ISREG(path.stat().st_mode)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xfb\x90\x44" * 4, "MP3 or AAC"),
        (b"\0\0\0\x20ftypM4A ", "MP4 or M4A"),
        (b"\x1a\x45\xdf\xa3", "WebM"),
        (b"OggS\0", "Ogg"),
        (b"fLaC", "FLAC"),
        (b"PK\x03\x04", "ZIP"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"%PDF-1.7", "PDF"),
        (b"/annex/objects/SHA256E-s1", "git-annex"),
        (b"\xef\xbb\xbf  <HTML>", "HTML"),
        (b'{"error": "not found"}', "JSON"),
        (b"<?xml version='1.0'?>", "XML"),
        (b"not found\n", "plain text"),
        (b"\0" * 100, "zero bytes"),
        (b"\x01\x02\x03\x04\x05", None),
        (b"", None),
    ],
)
def test_what_is_no_audio_is_named_for_what_it_is(head: bytes, kind: str | None) -> None:
    named = kind_of(head)
    assert (named is None) if kind is None else (named is not None and kind in named)


async def test_bytes_of_no_known_kind_are_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "random.wav"
    path.write_bytes(bytes(range(1, 200)))
    with pytest.raises(SourceError, match="no audio format") as caught:
        await play(path)
    assert caught.value.code is E.UNREADABLE
    assert has_audio_header(path.read_bytes()) is None


async def test_an_over_full_scale_mean_is_judged_on_its_channels(tmp_path: Path) -> None:
    """Two float channels beyond full scale in opposite phase: their mean would hide that."""
    path = tmp_path / "hot.wav"
    hot = voice(peak=20.0)
    path.write_bytes(riff(fmt(FLOAT, 2, bits=32), chunk(b"data", floats(interleaved(hot, -hot)))))
    with pytest.raises(SourceError, match="not in"):
        await play(path)
