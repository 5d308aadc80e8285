"""Bytes in, JSON objects out, whatever the server thinks an event is."""

import pytest

from treefold.models.sse import DONE, MAX_OTHER_BYTES, MAX_SHOWN, JsonEventParser


def read(*portions: bytes) -> list[object]:
    events = JsonEventParser()
    found = [value for portion in portions for value in events.feed(portion)]
    return [*found, *events.end()]


@pytest.mark.parametrize("data", [b'data: {"a":1}\n\n', b'{"a":1}', b'{\n "a": 1\n}\n'])
def test_a_mark_at_the_beginning_is_passed_over(data: bytes):
    assert read(b"\xef\xbb\xbf" + data) == [{"a": 1}]
    assert read(b"\xef", b"\xbb\xbf" + data) == [{"a": 1}]


def test_objects_without_the_word_data_are_taken():
    assert read(b'{"a":1}\n{"a":2}\n') == [{"a": 1}, {"a": 2}]


def test_fields_that_are_not_data_do_not_spoil_a_body():
    assert read(b'event: x\nid: 5\nretry: 10\n: comment\n{\n "a": 1\n}\n') == [{"a": 1}]


def test_an_object_over_several_lines_may_hold_what_looks_like_an_event():
    assert read(b'data: {"a":\ndata: {"b":1}\ndata: }\n\n') == [{"a": {"b": 1}}]


def test_what_was_begun_before_the_end_is_counted_as_junk():
    events = JsonEventParser()
    assert events.feed(b"data: {first\ndata: [DONE]\n\n") == [DONE]
    assert (events.invalid, events.first_invalid) == (1, "{first")
    events.feed(b"data: second" + b"x" * 1000 + b"\n\n")
    assert (events.invalid, events.first_invalid) == (2, "{first")


def test_only_the_beginning_of_junk_is_kept():
    events = JsonEventParser()
    events.feed(b"data: " + b"x" * 1000 + b"\n\n")
    assert events.first_invalid == "x" * MAX_SHOWN


def test_lines_of_no_kind_are_kept_up_to_a_limit():
    events = JsonEventParser()
    for _ in range(3):
        events.feed(b"x" * MAX_OTHER_BYTES + b"\n")
    assert sum(map(len, events._others)) == MAX_OTHER_BYTES  # pyright: ignore[reportPrivateUsage]


def test_many_long_events_are_not_one_too_long():
    events = JsonEventParser()
    line = b'data: {"a":"' + b"x" * 2**20
    for _ in range(70):
        events.feed(line)
        assert len(events.feed(b'"}\n\n')) == 1
