"""``voicegate bench mask`` and ``mask-check``: triplets of any recordings, and whether their masks hold."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from agent.exit_codes import ExitCode

if TYPE_CHECKING:
    from models.protocols import SpeechEar

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

KINDS = ("noise", "silence", "music", "babble")


def add_mask_parsers(commands: Subparsers) -> None:
    """Add ``mask`` and ``mask-check`` to the bench's commands."""
    mask = commands.add_parser("mask", help="make triplets of recordings with transcript and answer (EAR)")
    mask.add_argument("manifest", type=Path, metavar="MANIFEST", help="originals, as bench import writes them")
    mask.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the triplets")
    mask.add_argument("--split", choices=["train", "dev", "test"], help="only that part")
    mask.add_argument(
        "--masks", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND",
        help=f"which masks (default: {' '.join(KINDS)}); babble needs three other recordings",
    )  # fmt: skip
    mask.add_argument("--no-wide", action="store_true", help="only the window of the answer's own words")
    mask.add_argument("--noise", type=Path, metavar="DIR", help="recordings of noise in place of white noise")
    mask.add_argument("--music", type=Path, metavar="DIR", help="recordings of music in place of music made here")
    mask.add_argument("--voices", type=Path, metavar="DIR", help="recordings of talk for babble")
    mask.add_argument("--seed", type=int, metavar="N", help="of everything drawn at random")
    mask.add_argument("--threads", type=int, default=2, metavar="N", help="of the recogniser (default 2)")

    check = commands.add_parser("mask-check", help="hear masked recordings: is the answer gone, or still there")
    check.add_argument("manifest", type=Path, metavar="MANIFEST", help="triplets, built or masked")
    check.add_argument("--split", choices=["train", "dev", "test"], help="only that part")
    check.add_argument("--write", action="store_true", help="write a manifest without the triplets that fail")
    check.add_argument("--threads", type=int, default=2, metavar="N", help="of the recogniser (default 2)")


def run_mask(args: argparse.Namespace) -> int:
    """Mask a manifest's recordings.

    Returns:
        The exit code: ``FAILED`` when some could not be masked.
    """
    from bench.build.alignment import SphinxAligner, WhisperAligner
    from bench.build.ear import SEED
    from bench.build.function_words import SpacyTagger
    from bench.build.mask_recordings import Materials, mask_recordings, recordings_in
    from bench.trials import load_manifest

    aligners = (SphinxAligner(), WhisperAligner(lambda: _ear(args.threads)))
    materials = Materials(
        aligners, SpacyTagger(), recordings_in(args.noise), recordings_in(args.music), recordings_in(args.voices)
    )
    done = mask_recordings(
        args.manifest, args.out, materials, kinds=args.masks, wide=not args.no_wide,
        seed=SEED if args.seed is None else args.seed, split=args.split,
    )  # fmt: skip
    for name, problem in done.left_out.items():
        print(f"left out: {name}: {problem}", file=sys.stderr)
    originals = [trial for trial in load_manifest(done.manifest) if trial.condition == "original"]
    sources = Counter(str((trial.model_extra or {}).get("times_from")) for trial in originals)
    told = ", ".join(f"{count} {name}" for name, count in sorted(sources.items()))
    print(
        f"{done.triplets} triplets (word times: {told}), {len(done.left_out)} recordings left out\n{done.manifest}\n"
        f"next: voicegate bench mask-check {done.manifest} --write"
    )
    return ExitCode.FAILED if done.left_out else ExitCode.OK


def run_mask_check(args: argparse.Namespace) -> int:
    """Hear a manifest's masked recordings.

    Returns:
        The exit code: ``FAILED`` when some mask does not do what it is there for.
    """
    from bench.build.masked_check import check, write_checked

    found = check(args.manifest, _ear(args.threads), split=args.split)
    print(found.table())
    for name in found.failed:
        print(f"fails: {name}")
    if args.write:
        print(write_checked(args.manifest, found))
    return ExitCode.FAILED if found.failed else ExitCode.OK


def _ear(threads: int) -> SpeechEar:
    from models.speech_whisper import load
    from models.store import Store

    return load(Store(), threads)
