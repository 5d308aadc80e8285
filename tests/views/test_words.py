"""Values in words: one short line, whatever the value is."""

import pytest

from treefold.views.words import arguments_in_words, in_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("Ulm", "Ulm"),
        ("two\n  lines\tof text", "two lines of text"),
        ("", "an empty text"),
        (None, "nothing"),
        (True, "yes"),
        (False, "no"),
        (12, "12"),
        (2.5, "2.5"),
        (b"abc", "3 bytes"),
        ([], "nothing"),
        ({}, "nothing"),
        (["a", 1, None], "a, 1, nothing"),
        ({"city": "Ulm", "roads": ["A 7", "A 8"]}, "city: Ulm, roads: (A 7, A 8)"),
        ([{"a": 1}, {}], "(a: 1), nothing"),
        ([[[[[["deep"]]]]]], "(((((…)))))"),
        ("\x1b[31mred\u202e", "\\x1b[31mred\\u202e"),
    ],
)
def test_a_value_is_said_in_words(value: object, words: str):
    assert in_words(value) == words


def test_a_long_value_is_cut():
    assert in_words("x" * 1000, 20) == "x" * 19 + "…"
    assert in_words(list(range(100)), 60) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …"
    assert in_words(10**5000) == "<int: its __repr__ raised ValueError>"


def test_a_single_argument_needs_no_name():
    assert arguments_in_words({}) == ""
    assert arguments_in_words({"text": "Ulm"}) == "Ulm"
    assert arguments_in_words({"text": "Ulm", "n": 3}) == "text: Ulm, n: 3"
