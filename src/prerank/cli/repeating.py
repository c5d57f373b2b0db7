"""How to repeat a command: the line that was typed, and the same in Python."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import prerank
from prerank.diagnosis.reproduce import in_python
from prerank.io import Naming

if TYPE_CHECKING:
    from prerank.preranks import PreRank


def command_line(ctx: typer.Context) -> str:
    """The command with all that was said: arguments first, then options in the order of the help."""
    said: list[str] = []
    for parameter in sorted(ctx.command.params, key=lambda one: one.param_type_name != "argument"):
        value, source = ctx.params.get(parameter.name or ""), ctx.get_parameter_source(parameter.name or "")
        if value is None or source is None or source.name == "DEFAULT":
            continue
        values = value if isinstance(value, list | tuple) else [value]
        for item in values:
            option = [] if parameter.param_type_name == "argument" else [max(parameter.opts, key=len)]
            said += option if item is True else [*option, str(item)]
    return shlex.join(["prerank", str(ctx.info_name), *said])


def python_lines(
    forecasts: Path,
    observations: Path | None,
    naming: Naming,
    preranks: "Sequence[PreRank] | None",
    options: Mapping[str, Any],
) -> str:
    """Python that reads the same files and makes the same check and report."""
    files = [repr(str(file)) for file in (forecasts, observations) if file is not None]
    named = [(field.name, getattr(naming, field.name)) for field in fields(naming)]
    chosen = ", ".join(f"{name}={value!r}" for name, value in named if value not in ((), None))
    read = ", ".join([*(f"Path({file})" for file in files), *([f"naming=Naming({chosen})"] if chosen else [])])
    arguments = ["found.y", "found.members", *([] if preranks is None else [in_python(preranks, "")])]
    arguments.append('axes=("case", "member", "target")')
    if options["block"] is not None:
        arguments.append(f"blocks=found.columns[{options['block']!r}].to_numpy()")
    if len(options["by"]) == 1:
        arguments.append(f"by=found.columns[{options['by'][0]!r}].to_numpy()")
    elif options["by"]:
        arguments.append(f"by=found.columns[{list(options['by'])!r}].reset_index(drop=True)")
    arguments += [f"n_replicates={options['replicates']}", f"seed={options['seed']}"]
    names = sorted({type(one).__name__ for one in preranks or ()})
    others = [name for name in names if not hasattr(prerank, name)]
    lines = [
        "from pathlib import Path",
        f"from prerank import {', '.join([*(name for name in names if name not in others), 'check'])}",
        *([f"from prerank.preranks import {', '.join(others)}"] if others else []),
        f"from prerank.io import {'Naming, ' if chosen else ''}read_forecasts",
        "",
        f"found = read_forecasts({read})",
        f"result = check({', '.join(arguments)})",
    ]
    return "\n".join([*lines, f"result.to_html({str(options['html'])!r})"])
