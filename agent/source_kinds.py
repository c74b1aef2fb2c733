"""What bytes really are that an audio library could not read, so that the error names the cause and not the symptom."""

from __future__ import annotations

HEAD_BYTES = 512
"""How many first bytes ``kind_of`` wants to see."""

_CONVERT = "convert it: ffmpeg -i FILE -c:a pcm_s16le out.wav"

_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, not the file itself: run git lfs pull"),
    (b"/annex/objects/", "a git-annex pointer, not the file itself: run git annex get"),
    (b"RIFX", f"a RIFX file (big-endian WAV) with a header that contradicts that; {_CONVERT}"),
    (b"ID3", f"an MP3 file (ID3 tag) without readable audio; {_CONVERT}"),
    (b"\x1a\x45\xdf\xa3", f"a WebM or Matroska file; {_CONVERT}"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", f"a WMA file; {_CONVERT}"),
    (b"#!AMR", f"an AMR file; {_CONVERT}"),
    (b"OggS", f"an Ogg file with a codec that cannot be read; {_CONVERT}"),
    (b"fLaC", "a FLAC file with a damaged header: fetch it again"),
    (b"PK\x03\x04", "a ZIP archive: unpack it"),
    (b"\x1f\x8b", "a gzip file: unpack it"),
    (b"%PDF", "a PDF document"),
)
_TEXT_STARTS: tuple[tuple[str, str], ...] = (
    ("<!doctype html", "an HTML page, probably an error page saved by a download: fetch the file again"),
    ("<html", "an HTML page, probably an error page saved by a download: fetch the file again"),
    ("<?xml", "an XML document, probably an error message saved by a download: fetch the file again"),
    ("{", "JSON text, probably an error message saved by a download: fetch the file again"),
)


def kind_of(head: bytes) -> str | None:
    """Name what a file that is no readable audio really is.

    Args:
        head: its first bytes, ``HEAD_BYTES`` of them or the whole file.

    Returns:
        the kind and the cure ("an HTML page, ...: fetch the file again"), or None when it is not known.
    """
    for start, kind in _STARTS:
        if head.startswith(start):
            return kind
    if head[4:8] == b"ftyp":
        return f"an MP4 or M4A file; {_CONVERT}"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return f"an MP3 or AAC stream without readable audio; {_CONVERT}"
    if head and not any(head):
        return "nothing but zero bytes: the copy or the download failed"
    text = head.removeprefix(b"\xef\xbb\xbf").decode("latin-1").lstrip().lower()
    for text_start, kind in _TEXT_STARTS:
        if text.startswith(text_start):
            return kind
    if head and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        return "plain text"
    return None


def has_audio_header(head: bytes) -> str | None:
    """The container's name when bytes that should be raw samples begin with a file's header, else None."""
    names = ((b"RIFF", "WAV"), (b"RIFX", "WAV"), (b"RF64", "WAV"), (b"fLaC", "FLAC"), (b"OggS", "Ogg"), (b"ID3", "MP3"),
             (b"FORM", "AIFF"), (b".snd", "AU"), (b"caff", "CAF"))  # fmt: skip
    return next((name for start, name in names if head.startswith(start)), None)
