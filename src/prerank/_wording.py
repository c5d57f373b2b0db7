"""Counts in words, for messages and reprs; text from elsewhere made harmless to a terminal."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one.

    >>> counted(1, "case"), counted(20_000, "case"), counted(2, "tied member")
    ('1 case', '20,000 cases', '2 tied members')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shape_in_words(lead: tuple[int, ...], **axes: int) -> str:
    """The axes of a forecast in words; leading axes are models.

    >>> shape_in_words((), case=200, member=1, target=3), shape_in_words((4,), case=200, target=3)
    ('200 cases, 1 member, 3 targets', '4 models, 200 cases, 3 targets')
    """
    *outer, last = lead or (None,)
    models = [] if last is None else ["".join(f"{size:,} × " for size in outer) + counted(last, "model")]
    return ", ".join(models + [counted(size, noun.replace("_", " ")) for noun, size in axes.items()])


def printable(text: str) -> str:
    r"""A text with its control characters spelt out, apart from line ends: a name from a file must not move the cursor.

    >>> print(printable("\x1b[31mred\n"), end="")
    \x1b[31mred
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)
