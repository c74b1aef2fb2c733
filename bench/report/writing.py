"""Makes a report and writes it down: ``voicegate bench report``."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.report.contents import sections_of, title_of
from bench.report.errors import ReportError
from bench.report.evidence import evidence_of
from bench.report.failures import failures_of
from bench.report.html_page import html_page
from bench.report.markdown_page import markdown_page
from bench.report.players import DEFAULT_EMBED_MIB, MIB, AudioMode, Recordings
from bench.report.runs import load_reported
from bench.report.wording import count_of

PAGE = "report.html"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What is asked for.

    Attributes:
        folders: of the runs, at least one, in the order of the report; the others are compared with the first.
        page: where the HTML page goes, or None for none.
        markdown: where the Markdown goes, or None for none.
        audio: how recordings come with the page.
        embed_mib: the most that is embedded, in MiB of recordings.
        manifest: labels for all runs, with the recordings beside it, instead of those that each was run with.
    """

    folders: tuple[Path, ...]
    page: Path | None
    markdown: Path | None = None
    audio: AudioMode = AudioMode.LINK
    embed_mib: float = DEFAULT_EMBED_MIB
    manifest: Path | None = None


def write_report(options: ReportOptions) -> tuple[Path, ...]:
    """Write what is asked for. The same folders give the same files, to the byte.

    Returns:
        The files that were written.

    Raises:
        ReportError: when a file cannot be written.
        ScoreError, ManifestError, RunLogError, JudgementsError, ConfigurationDiffersError: when a run cannot be read.
    """
    runs = load_reported(options.folders, options.manifest)
    page_folder = (options.page or options.folders[0] / PAGE).parent
    # Only a page plays anything: Markdown alone looks for no recording.
    mode = options.audio if options.page is not None else AudioMode.NONE
    recordings = Recordings(mode, page_folder, round(options.embed_mib * MIB))
    failures = failures_of(runs, evidence_of, recordings.player)
    title, sections = title_of(runs), sections_of(runs, failures)
    written = []
    if options.page is not None:
        _write(options.page, html_page(title, sections, _closing(options, recordings)))
        written.append(options.page)
    if options.markdown is not None:
        _write(options.markdown, markdown_page(title, sections))
        written.append(options.markdown)
    return tuple(written)


def _closing(options: ReportOptions, recordings: Recordings) -> list[str]:
    match options.audio:
        case AudioMode.LINK:
            return ["Recordings are linked, not contained: they play while the corpus lies where it lay."]
        case AudioMode.NONE:
            return ["Recordings are left out of this page."]
        case AudioMode.EMBED:
            limit = f"of at most {options.embed_mib:g} MiB, the most dangerous failures first"
            left = f"; {count_of(recordings.left_out, 'recording')} did not fit" if recordings.left_out else ""
            return [f"This page holds {count_of(recordings.embedded, 'recording')} {limit}{left}."]


def _write(path: Path, content: str) -> None:
    """A file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(content, encoding="utf-8", newline="\n")
        draft.replace(path)
    except OSError as error:
        raise ReportError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
