"""Reading ARFF, the format of the Mulan collection.

What is read: dense rows, names and values in single or double quotes (one kind per data section), `%` comments,
`?` for missing. What is refused, with a message: sparse rows, relational attributes. The types in the header are
ignored: a column is what its values are, as in CSV.
"""

import re
from pathlib import Path

import pyarrow as pa

from prerank.io.delimited import file_bytes, parse
from prerank.io.errors import DataError

_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|([^\s'"{]\S*))(?:\s+|(?=\{))(\S.*)$""", re.IGNORECASE)


def read_arff(path: Path) -> pa.Table:
    """An ARFF file as a table."""
    return parse_arff(file_bytes(path), path.name)


def parse_arff(data: bytes, source: str) -> pa.Table:
    r"""ARFF text as a table.

    >>> parse_arff(b"@relation r\n@attribute 'a b' numeric\n@attribute c {u,v}\n@data\n1,u\n?,v\n", "r").to_pydict()
    {'a b': [1, None], 'c': ['u', 'v']}
    """
    lines = _lines(data, source)
    names: list[str] = []
    rows = iter(lines)
    for number, line in rows:
        word = line.split(maxsplit=1)[0].lower()
        if word == "@data":
            break
        if word == "@attribute":
            names.append(_attribute(line, number, source))
        elif word != "@relation":
            raise DataError(f"{source}, line {number}: expected @relation, @attribute or @data, got {line[:40]!r}.")
    else:
        raise DataError(f"{source} has no @data line after {len(names)} attributes; the file may be cut short.")
    if not names:
        raise DataError(f"{source} declares no @attribute before @data.")
    return _rows([line for _, line in rows], names, source)


def _lines(data: bytes, source: str) -> list[tuple[int, str]]:
    # comments are left out before decoding: old files carry names in whatever encoding their author had
    lines = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        stripped = raw.strip()
        if not stripped or stripped.startswith(b"%"):
            continue
        try:
            text = stripped.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise DataError(f"{source}, line {number} is not UTF-8. Save the file as UTF-8.") from None
        if text:
            lines.append((number, text))
    return lines


def _attribute(line: str, number: int, source: str) -> str:
    match = _ATTRIBUTE.match(line)
    if match is None:
        raise DataError(f"{source}, line {number}: an attribute needs a name and a type, got {line[:60]!r}.")
    if match[4].lower().startswith("relational"):
        raise DataError(f"{source}, line {number}: relational attributes are not read; flatten the file first.")
    return next(group for group in match.groups()[:3] if group is not None)


def _rows(rows: list[str], names: list[str], source: str) -> pa.Table:
    if not rows:
        raise DataError(f"{source} declares {len(names)} attributes and has no rows.")
    if rows[0].startswith("{"):
        raise DataError(f"{source} has sparse rows, which are not read; save it in the dense form.")
    body = "\n".join(rows)
    single, double = "'" in body, '"' in body
    if single and double:
        raise DataError(f"{source} mixes single and double quotes in its data; use one kind.")
    if not single and not double:
        # blanks around a comma are no part of a value, but " ?" would not be recognised as missing
        body = re.sub(r"[ \t]*,[ \t]*", ",", body)
    return parse(body.encode(), source, header=False, quote="'" if single else '"', names=names)
