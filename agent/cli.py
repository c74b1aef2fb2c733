"""``voicegate``: the command line. Parsing is quick; each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from agent.exit_codes import ExitCode
from agent.worker import calls_running

_EPILOG = """exit codes: 0 all right; 1 failed; 2 wrong flags or settings; 3 models; 4 microphone or file;
5 profile or enrolment clip; 6 tools or journal; 130 Ctrl-C"""

_COMMAND_GROUP = "voicegate.commands"
"""Entry points of this distribution whose packages this one must not import. Each names a function that adds a command
and sets ``run_command`` on it, a function from the parsed arguments to the exit code."""

AddCommand = Callable[[Any], None]
"""Adds a command to what ``ArgumentParser.add_subparsers`` returns."""


def build_parser(more: Sequence[AddCommand] = ()) -> argparse.ArgumentParser:
    """The whole command line.

    Args:
        more: commands beside those that are built in or registered.
    """
    from agent.forget import add_forget_parser
    from agent.train import add_train_parser
    from models.store_cli import add_models_parser

    parser = argparse.ArgumentParser(
        prog="voicegate",
        description="A real-time gate for voice agents: works out who spoke, how near, to whom, and whether the words "
        "came through, before any tool runs.",
        epilog=_EPILOG,
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings file (TOML)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listen = commands.add_parser("listen", help="listen to a microphone", epilog=_EPILOG)
    listen.add_argument("--device", help="microphone: index, or a part of its name (see `voicegate devices`)")
    listen.add_argument("--stdin", action="store_true", help="read raw samples from standard input instead")
    listen.add_argument("--rate", type=int, default=16_000, help="sample rate of --stdin in Hz (default 16000)")
    listen.add_argument("--channels", type=int, default=1, help="channels of --stdin (default 1)")
    listen.add_argument("--format", choices=["s16le", "f32le"], default="s16le", help="sample format of --stdin")
    listen.add_argument("--voice", action="store_true", help="speak answers and questions aloud (see docs/voice.md)")
    _session_flags(listen)

    replay = commands.add_parser("replay", help="replay recordings through the live loop", epilog=_EPILOG)
    replay.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="whatever libsndfile reads; one session each"
    )
    replay.add_argument(
        "--pace", choices=["charged", "wall", "free"], default="charged",
        help="charged (default): as fast as it can be computed, with the latencies of real time; wall: in real time; "
        "free: computing costs no time",
    )  # fmt: skip
    replay.add_argument("--json", action="store_true", help="one JSON object a decision on standard output")
    replay.add_argument("--question", metavar="TEXT", help="a question about the recording, answered at its end")
    _session_flags(replay)

    enroll = commands.add_parser(
        "enroll",
        help="enrol the wearer from clips or the microphone",
        description="Enrols the wearer from clips or the microphone. Her profile can be encrypted, with a passphrase "
        "from the environment variable VOICEGATE_PROFILE_PASSPHRASE or typed in a terminal; what is encrypted stays so "
        "when it is replaced, and whoever forgets the passphrase enrols again.",
        epilog=_EPILOG,
    )
    enroll.add_argument("files", nargs="*", type=Path, metavar="FILE", help="clips of the wearer; none: the microphone")
    enroll.add_argument("--name", default="wearer", help="whose profile it is")
    enroll.add_argument("--out", type=Path, metavar="FILE", help="where to write it (default: the user's data folder)")
    enroll.add_argument("--seconds", type=float, default=10.0, help="how long to record (default 10)")
    enroll.add_argument("--device", help="microphone: index, or a part of its name")
    enroll.add_argument(
        "--encrypt", action="store_true",
        help="encrypt the profile, as [session] encrypt_profile = true in the settings does each time",
    )  # fmt: skip

    commands.add_parser("devices", help="list microphones")
    add_models_parser(commands)
    tools = commands.add_parser("tools", help="tools and their journal")
    tool_commands = tools.add_subparsers(dest="tools_command", required=True, metavar="COMMAND")
    tool_list = tool_commands.add_parser("list", help="the tools, their risk and their parameters")
    tool_list.add_argument("--json", action="store_true", help="as JSON")
    journal = tool_commands.add_parser("journal", help="what was executed")
    journal.add_argument("--last", type=int, default=20, help="how many (default 20)")
    journal.add_argument("--json", action="store_true", help="as JSON Lines")
    add_forget_parser(commands)
    add_train_parser(commands)
    policies = commands.add_parser("policies", help="what can propose actions, what it needs, and how it fared here")
    policies.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("doctor", help="check audio, models, broker and disk, and say what to do")
    for add in dict.fromkeys((*_registered(), *more)):
        add(commands)
    return parser


def _registered() -> list[AddCommand]:
    """The commands that other packages of this distribution bring."""
    try:
        entries = metadata.distribution("voicegate").entry_points.select(group=_COMMAND_GROUP)
    except metadata.PackageNotFoundError:
        return []
    return [entry.load() for entry in entries]


def _session_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", help="who proposes actions (see `voicegate policies`)")
    parser.add_argument("--owner", choices=["auto", "enrolled", "initiator"], help="whose commands count")
    parser.add_argument(
        "--profile",
        help="profile of the enrolled wearer; an encrypted one is opened with the passphrase in "
        "VOICEGATE_PROFILE_PASSPHRASE, or with one that is asked for in a terminal",
    )
    parser.add_argument(
        "--enrolment", type=Path, action="append", default=[], metavar="FILE",
        help="enrol from this clip for this run only; may be repeated",
    )  # fmt: skip
    parser.add_argument("--events", metavar="FILE", help="append all events to this JSON Lines file")
    parser.add_argument("--journal", metavar="FILE", help="journal of executions")
    parser.add_argument("--no-tools", action="store_true", help="decide, but execute nothing")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the live panel")
    parser.add_argument("--threads", type=int, help="threads per model")


def main(argv: Sequence[str] | None = None, more: Sequence[AddCommand] = ()) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; the process's own by default.
        more: commands beside those that are built in or registered.

    Returns:
        The exit code (see ``agent.exit_codes``).
    """
    args = build_parser(more).parse_args(argv)
    try:
        return int(_dispatch(args))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return int(ExitCode.OK)
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        print(f"voicegate: {error}", file=sys.stderr)
        return int(code)


def entry() -> NoReturn:
    """Run one command, and end the process with its exit code."""
    end(main())


def end(code: int) -> NoReturn:
    """End the process, also while a model that was given up still computes.

    Its thread cannot be stopped, and an ordinary end would destroy the libraries that it is in: the process would die
    of a segmentation fault instead. By now every event is flushed and the journal is closed.
    """
    if calls_running():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(args: argparse.Namespace) -> int:
    if "run_command" in args:
        return int(args.run_command(args))
    match args.command:
        case "models":
            from models.store_cli import run as run_models

            return run_models(args)
        case "devices":
            from agent.source_microphone import format_devices, list_devices

            print(format_devices(list_devices()))
            return ExitCode.OK
        case "tools":
            return _tools(args)
        case "doctor":
            from agent.doctor import run as run_doctor

            return run_doctor(_settings(args))
        case "policies":
            from agent.policies import run as run_policies

            return run_policies(as_json=args.json)
        case "forget":
            from agent.forget import run as run_forget

            return run_forget(args, _settings(args))
        case "enroll":
            from agent.enrol import run as run_enrol
            from agent.enrol import sealer_for

            settings = _settings(args)
            # A passphrase is asked for before the event loop runs: inside of it, Ctrl-C would not end the question.
            sealer = sealer_for(args, settings)
            return _run_async(run_enrol(args, settings, _store(), sealer))
        case _:
            from agent.run_sessions import listen, passphrase_for, replay

            settings = _settings(args)
            passphrase = passphrase_for(args, settings)
            run_session = listen if args.command == "listen" else replay
            return _run_async(run_session(args, settings, _store(), passphrase))


def _settings(args: argparse.Namespace) -> Any:
    from agent.settings import load_settings

    device: str | int | None = getattr(args, "device", None)
    if isinstance(device, str) and device.isdecimal():
        device = int(device)
    return load_settings(
        args.settings,
        {
            "source.device": device,
            "models.policy": getattr(args, "policy", None),
            "models.threads": getattr(args, "threads", None),
            "session.owner": getattr(args, "owner", None),
            "session.profile": getattr(args, "profile", None),
            "session.encrypt_profile": True if getattr(args, "encrypt", False) else None,
            "output.events": getattr(args, "events", None),
            "tools.journal": getattr(args, "journal", None),
            "voice.enabled": True if getattr(args, "voice", False) else None,
            "tools.enabled": False if getattr(args, "no_tools", False) else None,
        },
    )


def _store() -> Any:
    from models.store import Store

    return Store()


def _run_async(work: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Run with Ctrl-C and SIGTERM as cancellation, so that every event is flushed; a second Ctrl-C ends at once."""

    async def guarded() -> ExitCode:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)

        def stop() -> None:
            if task.done() or task.cancelling():
                # What still runs ignores its cancellation (a tool may), and would also keep the interpreter from
                # ending. Journal and event file are whole at any instant.
                print("stopped at once", file=sys.stderr, flush=True)
                os._exit(ExitCode.INTERRUPTED)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        try:
            return await task
        except asyncio.CancelledError:
            print("stopped", file=sys.stderr)
            return ExitCode.INTERRUPTED

    return asyncio.run(guarded())


def _tools(args: argparse.Namespace) -> ExitCode:
    import json

    from agent.assemble import journal_path, load_catalogue
    from tools.catalogue import describe
    from tools.journal import read_journal

    settings = _settings(args)
    if args.tools_command == "journal":
        for entry in read_journal(journal_path(settings), args.last):
            plain = f"{entry.state:<16} {entry.tool}  {entry.turn_id}  {entry.detail}"
            print(json.dumps(entry.as_json()) if args.json else plain)
        return ExitCode.OK
    rows = describe(load_catalogue(settings))
    if args.json:
        print(json.dumps(rows, indent=2))
        return ExitCode.OK
    for row in rows:
        params = ", ".join(param["name"] + ("" if param["required"] else "?") for param in row["params"])
        print(f"{row['risk']:<7} {row['name']}({params})\n{'':8}{row['description']}")
    return ExitCode.OK


def _code_of(error: Exception) -> ExitCode | None:
    """The exit code of an error that a person can act on; None for a bug, which keeps its traceback."""
    from agent.enrol import ClipRefusedError
    from agent.passphrase import PassphraseError
    from agent.settings import SettingsError
    from agent.sources import SourceError
    from agent.vad import VadUnavailableError
    from agent.wearer_profile import ProfileError
    from models.store_errors import ModelError
    from tools.journal import JournalError
    from tools.loading import ToolLoadError

    table: dict[type[Exception], ExitCode] = {
        SettingsError: ExitCode.USAGE,
        ModelError: ExitCode.MODELS,
        SourceError: ExitCode.SOURCE,
        VadUnavailableError: ExitCode.MODELS,
        ProfileError: ExitCode.PROFILE,
        PassphraseError: ExitCode.PROFILE,
        ClipRefusedError: ExitCode.PROFILE,
        ToolLoadError: ExitCode.TOOLS,
        JournalError: ExitCode.TOOLS,
        PermissionError: ExitCode.FAILED,
    }
    return next((code for kind, code in table.items() if isinstance(error, kind)), None)


if __name__ == "__main__":
    entry()
