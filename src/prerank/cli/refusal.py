"""What cannot be done is said in one line, with exit status 2; a traceback is a bug."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from prerank._wording import printable

_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space, or give a place on another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions, or give another place"),
}


_USAGE: Any = typer.BadParameter.__mro__[1]  # click's UsageError, or that of typer's own copy of click


class Commands(TyperGroup):
    """Commands whose refusals are one line: bad values, a full disk, a damaged file, an empty option. Flags show no type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, in whose help a flag has no type."""
        return _untyped_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, in whose help a flag has no type."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _untyped_flags(command.get_params(ctx))
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an empty value before it becomes a default, all of something, or the current folder."""
        with one_line():
            if not ctx.resilient_parsing:  # a shell asks how an unfinished line could go on
                refuse_empty(args)
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with one_line():
            return super().invoke(ctx)


def _untyped_flags(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


def refuse_empty(arguments: Sequence[str]) -> None:
    """No option or argument of ours has an empty value, so that one is a slip, such as a variable that is not set.

    >>> refuse_empty(["check", "--prerank", ""])
    Traceback (most recent call last):
    ValueError: the value after --prerank is empty; give one, or leave it out
    """
    for before, argument in zip(["the command", *arguments], arguments, strict=False):
        if not argument.strip():
            raise ValueError(f"the value after {before} is empty; give one, or leave it out")
        name, equals, value = argument.partition("=")
        if name.startswith("--") and equals and not value.strip():
            raise ValueError(f"the value of {name} is empty; give one, or leave it out")


@contextmanager
def one_line() -> Iterator[None]:
    """Print a refusal of the block on the error stream and end the command."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # nobody reads on, as in `prerank check FORECASTS | head -1`
            raise
        text = _of_the_system(error)
    except _USAGE as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # `prerank` alone shows its help
            raise
        see = "" if error.ctx is None else f"; see {error.ctx.command_path} --help"
        text = error.format_message().rstrip(".") + see
    except (ValueError, ImportError) as error:
        text = str(error)
    except MemoryError as error:
        text = _too_large(str(error))
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        text = _too_large(str(error).partition("memory: ")[2])
    else:
        return
    shown = escape(printable(" ".join(text.splitlines())))
    Console(stderr=True).print(f"[red]{shown}[/]", highlight=False, soft_wrap=True)
    raise typer.Exit(2)


def _too_large(details: str) -> str:
    said = details.partition("\n")[0].partition(". Error code")[0] or "for so many numbers"
    return f"there is not enough memory ({said}); take fewer cases, members, draws or replicates"


def _of_the_system(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    what = "the output" if error.filename is None else os.fspath(error.filename)
    remedy = _REMEDIES.get(error.errno, "check it, or give another place")
    return f"{what} cannot be used: {os.strerror(error.errno)}; {remedy}"
