"""Turns streamed text, as servers send it, into text that can be shown.

Two state machines: one recognizes chunks that repeat all the text so far, the other separates
thinking between tags from the answer. Neither loses or duplicates a character.
"""

from typing import Final

from treefold.models.json_text import SurrogateJoiner

# A shorter text, in characters, may well be repeated by chance.
_MIN_LENGTH: Final = 3
# Different characters; a growing row of dashes proves nothing.
_MIN_DISTINCT: Final = 3
# Equal chunks in a row; if they were all the text so far, it would have grown.
_MAX_REPEATS: Final = 3
# Chunks that each extend the text, until it is certain that chunks are cumulative.
_CONFIRMED: Final = 2


class DeltaText:
    """Detects whether each chunk is new text, or cumulative: all the text so far.

    Chunks are new text unless the profile says otherwise or a chunk strictly extends all the text
    before it: from then on each chunk is taken for all the text so far. While chunks only repeat
    the text, both readings are possible, and what they have in common is emitted at once.
    """

    def __init__(self, *, cumulative: bool | None = None) -> None:
        self._cumulative = cumulative
        self._is_known = cumulative is not None
        self._joiner = SurrogateJoiner()
        self._seen = ""  # the last chunk, while it may be all the text so far
        self._emitted = 0  # how much of it was emitted
        self._held: list[str] = []  # chunks to emit if chunks turn out to be new text
        self._extended = 0  # cumulative chunks that extended the text
        self._repeats = 0

    def feed(self, piece: str) -> str:
        """Return the new text in *piece*."""
        piece = self._joiner.feed(piece)
        if self._cumulative is False or not piece:
            return piece
        if self._cumulative:
            return self._beyond(piece)
        if not self._seen:
            self._seen, self._emitted = piece, len(piece)
            return piece
        if not piece.startswith(self._seen):
            self._cumulative = False
            return self._release() + piece
        if len(piece) > len(self._seen) >= _MIN_LENGTH and len(set(piece)) >= _MIN_DISTINCT:
            self._cumulative = True
            return self._beyond(piece)
        self._repeats = self._repeats + 1 if len(piece) == len(self._seen) else 0
        self._held.append(piece)
        self._seen = piece
        if self._repeats == _MAX_REPEATS:
            self._cumulative = False
            return self._release()
        return ""

    def _beyond(self, piece: str) -> str:
        """Return what *piece*, which is all the text so far, adds to what was emitted."""
        emitted = self._seen[: self._emitted]
        if piece.startswith(emitted):
            self._extended += len(piece) > self._emitted
        elif emitted.startswith(piece):  # repeated without its trailing white space
            return ""
        elif self._is_known or self._extended >= _CONFIRMED:  # the text starts over
            self._emitted = 0
        else:  # one chunk extended the text by chance
            self._cumulative = False
            return piece
        new = piece[self._emitted :]
        self._seen, self._emitted = piece, max(self._emitted, len(piece))
        return new

    def end(self) -> str:
        """Return the text held back; without proof of the contrary it was new text."""
        rest = self._joiner.end()
        if rest:
            rest = self.feed(rest)
        return rest + "".join([] if self._cumulative else self._held)

    def _release(self) -> str:
        held, self._held = "".join(self._held), []
        return held


class ThinkTagParser:
    """Separates thinking between tags from the answer.

    An opening tag counts at the beginning of a response only; a closing tag without an opening one
    means that everything before it was thinking. White space next to a tag belongs to the tag.
    """

    def __init__(self, opening: str, closing: str, *, thinks_first: bool = False) -> None:
        self._opening = opening
        self._closing = closing
        self._thinks_first = thinks_first
        self._state = self._begin
        # White space that may belong to a tag: in pieces, because a model may write a lot of it.
        self._space: list[str] = []
        self._held = ""  # after it: what may be the beginning of a tag
        self._skips_space = False  # white space after a tag is dropped
        self._answer: list[str] = []  # while a closing tag may still follow
        self._assumed: list[str] = []  # everything, while it is only assumed to be thinking

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Return what *text* adds, as pairs of a kind and a text.

        The kinds are "text", "thinking", and "rethink": all "text" so far was thinking.
        """
        if self._thinks_first:
            self._assumed.append(text)
        if self._held:
            text = self._held + text
            self._held = ""
        found: list[tuple[str, str]] = []
        self._state(text, found)
        return found

    def end(self) -> list[tuple[str, str]]:
        """Return the text held back."""
        held, self._held = self._with_space(self._held), ""
        if self._state == self._think:
            held = held.rstrip()
            return [("thinking", held)] if held else []
        return [("text", held)] if held else []

    def unclosed(self) -> str:
        """Return text that was emitted as thinking without any tag to confirm it: the answer."""
        return "".join(self._assumed) if self._state == self._think else ""

    def _with_space(self, text: str) -> str:
        """Return *text* after the white space that was held back."""
        if not self._space:
            return text
        space, self._space = "".join(self._space), []
        return space + text

    def _begin(self, text: str, found: list[tuple[str, str]]) -> None:
        start = text.lstrip()
        opened = start.startswith(self._opening)
        if opened:
            self._thinks_first, self._assumed = False, []
        if self._opening.startswith(start) and not opened:  # also if there is no text yet
            self._space.append(text.removesuffix(start))
            self._held = start
        elif opened or self._thinks_first:
            self._state = self._think
            self._space = []
            self._skips_space = True
            self._think(start.removeprefix(self._opening), found)
        else:
            self._state = self._wait_for_closing
            self._wait_for_closing(self._with_space(text), found)

    def _think(self, text: str, found: list[tuple[str, str]]) -> None:
        if self._skips_space:
            text = text.lstrip()
        thought, tag, rest = text.partition(self._closing)
        if not tag:
            thought, self._held = _split_partial_tag(thought, self._closing)
        if kept := thought.rstrip():
            self._skips_space = False
            found.append(("thinking", self._with_space(kept)))
        if tag:
            self._space = []
            self._begin_answer(rest, found)
        elif space := thought[len(kept) :]:
            self._space.append(space)

    def _begin_answer(self, text: str, found: list[tuple[str, str]]) -> None:
        self._skips_space = True
        self._thinks_first, self._assumed = False, []
        self._state = self._emit_answer
        self._emit_answer(text, found)

    def _emit_answer(self, text: str, found: list[tuple[str, str]]) -> None:
        if self._skips_space:
            text = text.lstrip()
            self._skips_space = not text
        if text:
            found.append(("text", text))

    def _wait_for_closing(self, text: str, found: list[tuple[str, str]]) -> None:
        """Emit the answer, which a closing tag would turn into thinking."""
        if self._closing[0] not in text:  # the usual case
            found.append(("text", text))
            self._answer.append(text)
            return
        before, tag, rest = text.partition(self._closing)
        if not tag:
            before, self._held = _split_partial_tag(before, self._closing)
        if before:
            found.append(("text", before))
            self._answer.append(before)
        if not tag:
            return
        if self._opening in "".join(self._answer):  # the answer is about tags
            self._state = self._emit_answer
            found.append(("text", self._closing + rest))
        else:
            found.append(("rethink", ""))
            self._begin_answer(rest, found)


def _split_partial_tag(text: str, tag: str) -> tuple[str, str]:
    """Split *text* before an end that may be the beginning of *tag*."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return text[:-size], text[-size:]
    return text, ""
