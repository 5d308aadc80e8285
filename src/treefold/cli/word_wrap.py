"""Break lines of text for a terminal between words, while the text arrives."""

import re
import unicodedata
from typing import Final

_PIECE: Final = re.compile(r"\n|[ \t]|[^ \t\n]+")
_TAB: Final = 8  # columns
_JOINER: Final = "\u200d"
_PULL_BACK: Final = "\x1b[{}D\x1b[K\n"  # erase what was written of a word, and start a line


class WordWrap:
    """Adds line breaks to text that arrives in pieces, so that no word is torn.

    A piece is returned at once, even if it ends in the middle of a word: when the rest of the word
    does not fit, its beginning is erased and written again on the next line. A word that is wider
    than a line begins on one of its own, and the terminal breaks it: then it can be copied whole.
    Lines may break on both sides of a wide character. A line leaves the last column empty.
    """

    def __init__(self) -> None:
        self._columns = 0
        self._column = 0  # of the cursor
        self._word = ""  # the part of the last word that is written
        self._begin = 0  # the column where that word begins
        self._breaks = False  # whether the line was begun here, and not by the text

    def feed(self, text: str, columns: int) -> str:
        """Return *text*, whose characters are printable, for a terminal of so many *columns*.

        Nothing is changed if that is 0: some terminals do not know their width.
        """
        if not columns:
            return text
        if columns != self._columns:
            self._resize(columns)
        return "".join(map(self._next, _PIECE.findall(text)))

    def _resize(self, columns: int) -> None:
        # The terminal may have moved what is written: it is left where it is.
        self._end_word()
        self._columns, self._column = columns, _in_row(self._column, columns)
        self._begin = self._column

    def _next(self, piece: str) -> str:
        if piece == "\n":
            self._end_line(breaks=False)
            return piece
        if piece in {" ", "\t"}:
            return self._space(piece)
        return "".join(map(self._part, _parts(piece)))

    def _space(self, space: str) -> str:
        self._end_word()
        if self._breaks and not self._column:  # it was at the end of the line before
            return ""
        width = 1 if space == " " else _TAB - self._column % _TAB
        if self._column + width >= self._columns:
            self._end_line(breaks=True)
            return "\n"
        self._column += width
        self._begin = self._column
        return space

    def _part(self, part: str) -> str:
        """Return a part of a word: a single wide character, or others."""
        if self._word.endswith(_JOINER):  # together they are one character
            self._word += part
            return part
        if is_wide(part[0]):
            self._end_word()
        width, begun, written = cell_width(part), cell_width(self._word), part
        if self._column + width >= self._columns and self._begin:
            back = _PULL_BACK.format(begun) if begun else "\n"
            written = f"{back}{self._word}{part}"
            self._begin, self._column = 0, begun
        self._column += width
        self._word += part
        return written

    def _end_word(self) -> None:
        self._word = ""
        self._column = self._begin = _in_row(self._column, self._columns)

    def _end_line(self, *, breaks: bool) -> None:
        self._word, self._column, self._begin, self._breaks = "", 0, 0, breaks


def _in_row(column: int, columns: int) -> int:
    """Return the column of the cursor after the terminal has broken a line that was too wide."""
    return (column - 1) % columns + 1 if column > columns > 0 else column


def _parts(word: str) -> list[str]:
    """Return the parts of *word*: each wide character with what modifies it, and the rest."""
    parts: list[str] = []
    for char in word:
        if not parts or is_wide(char) or (is_wide(parts[-1][0]) and cell_width(char)):
            parts.append(char)
        else:
            parts[-1] += char
    return parts


def cell_width(text: str) -> int:
    """Return how many columns *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(char) in {"Mn", "Me", "Cf"} else 1 + is_wide(char)
        for char in text
    )


def is_wide(char: str) -> bool:
    """Whether *char* takes two columns."""
    return unicodedata.east_asian_width(char) in {"W", "F"}
