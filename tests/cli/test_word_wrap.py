"""Answers wrap at words, in whatever pieces they arrive."""

from typing import Any

import pyte
import pytest

from treefold.cli.word_wrap import WordWrap

COLUMNS = 20


def shown(pieces: list[str], columns: int = COLUMNS) -> list[str]:
    """Return the lines of a terminal on which *pieces* are written one after the other."""
    screen: Any = pyte.Screen(columns, 40)
    stream: Any = pyte.Stream(screen)
    wrap = WordWrap()
    for piece in pieces:
        stream.feed(wrap.feed(piece, columns).replace("\n", "\r\n"))
    lines: list[str] = [line.rstrip() for line in screen.display]
    return "\n".join(lines).rstrip().split("\n")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("The quick brown fox jumps.", ["The quick brown fox", "jumps."]),
        ("one\n\n  two three four five six", ["one", "", "  two three four", "five six"]),
        ("double  spaces  at  the  end", ["double  spaces  at", "the  end"]),
        ("a\tb\tc d e f", ["a       b       c d", "e f"]),
        ("nineteen characters.", ["nineteen", "characters."]),
        (
            "see https://example.org/a/long/address for more",
            ["see", "https://example.org/", "a/long/address for", "more"],
        ),
        ("一二三四五六七八九十十一", ["一二三四五六七八九", "十十一"]),
        ("日本語 and 日本語 mixed", ["日本語 and 日本語", "mixed"]),
        ("na\u0308ive ideas e\u0301 la mode", ["na\u0308ive ideas e\u0301 la", "mode"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_no_word_is_torn(text: str, lines: list[str], size: int):
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    # The emulator shows a composed character where it can.
    assert [line.replace("ä", "a\u0308").replace("é", "e\u0301") for line in shown(pieces)] == lines


def test_text_that_arrives_whole_has_no_escape_sequences():
    assert WordWrap().feed("The quick brown fox jumps.", 20) == "The quick brown fox\njumps."


def test_text_is_left_alone_if_the_width_is_not_known():
    assert WordWrap().feed("The quick brown fox", 0) == "The quick brown fox"


def test_a_joined_character_stays_in_one_piece():
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for before, written in [("0123456789abcdef ", family), ("0123456789abcdefg ", f"\n{family}")]:
        wrap = WordWrap()
        wrap.feed(before, COLUMNS)
        assert "".join(wrap.feed(char, COLUMNS) for char in family) == written


def test_what_is_written_is_left_alone_when_the_terminal_is_resized():
    wrap = WordWrap()
    assert wrap.feed("The quick bro", 20) == "The quick bro"
    assert wrap.feed("wn fox jumps over", 12) == "wn fox \njumps over"
