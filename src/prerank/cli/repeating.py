"""How to repeat a command: the line that was typed, and the same in Python."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from prerank.data import Naming
from prerank.diagnosis import in_python

if TYPE_CHECKING:
    from prerank.calibration import PreRank


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
    rows = "" if options["by"] is None else "[rows]"
    arguments = [f"found.y{rows}", f"found.members{rows}", *([] if preranks is None else [in_python(preranks, "")])]
    arguments.append('axes=("case", "member", "target")')
    if options["block"] is not None:
        arguments.append(f"blocks=found.columns[{options['block']!r}].to_numpy(){rows}")
    arguments += [f"n_replicates={options['replicates']}", f"seed={options['seed']}"]
    call = f"check({', '.join(arguments)})"
    names = sorted({type(one).__name__ for one in preranks or ()})
    lines = [
        "from pathlib import Path",
        f"from prerank import {', '.join([*names, 'check'])}",
        f"from prerank.data import {'Naming, ' if chosen else ''}read_forecasts",
        *([] if options["by"] is None else ["from prerank.diagnosis import grouped"]),
        "",
        f"found = read_forecasts({read})",
    ]
    if options["by"] is None:
        lines.append(f"result = {call}")
    else:
        lines += [
            f"groups = found.columns[{options['by']!r}].to_numpy()",
            "parts = {str(group): groups == group for group in sorted(set(groups))}",
            f"result = grouped({{group: {call} for group, rows in parts.items()}})",
        ]
    return "\n".join([*lines, f"result.to_html({str(options['html'])!r})"])
