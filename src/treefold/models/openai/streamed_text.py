"""Text that comes in pieces, as servers send it, made into text that a person can be shown.

Two small machines: one tells repeated text from text that is sent whole each time, the other tells
thinking from speaking. Neither loses or doubles a character.
"""

from typing import Final

from treefold.models.json_text import SurrogateJoiner

SHORTEST: Final = 3  # characters; a shorter text may well be repeated by chance
VARIED: Final = 3  # different characters; a growing row of dashes proves nothing
REPEATS: Final = 3  # equal pieces in a row are not all the text so far, which would have grown
CONFIRMED: Final = 2  # pieces that each extend the text


class NewText:
    """Finds out whether each piece is new text, or all the text so far.

    Pieces are new text unless a profile says otherwise or a piece strictly extends all the text
    that came before it: from then on each piece is taken for all the text so far. As long as pieces
    only repeat the text, both readings are possible, and what they share is given out at once.
    """

    def __init__(self, *, cumulative: bool | None = None) -> None:
        self._cumulative = cumulative
        self._is_known = cumulative is not None
        self._characters = SurrogateJoiner()
        self._seen = ""  # the last piece, as long as it may be all the text so far
        self._given = 0  # how much of it was given out
        self._held: list[str] = []  # pieces that are new text, if pieces are new text
        self._extended = 0  # pieces that extended the text, once they are all the text so far
        self._still = 0

    def feed(self, piece: str) -> str:
        """Return what is new in *piece*."""
        return self._new(self._characters.feed(piece))

    def _new(self, piece: str) -> str:
        if self._cumulative is False or not piece:
            return piece
        if self._cumulative:
            return self._beyond(piece)
        if not self._seen:
            self._seen, self._given = piece, len(piece)
            return piece
        if not piece.startswith(self._seen):
            self._cumulative = False
            return self._release() + piece
        if len(piece) > len(self._seen) >= SHORTEST and len(set(piece)) >= VARIED:
            self._cumulative = True
            return self._beyond(piece)
        self._still = self._still + 1 if len(piece) == len(self._seen) else 0
        self._held.append(piece)
        self._seen = piece
        if self._still == REPEATS:
            self._cumulative = False
            return self._release()
        return ""

    def _beyond(self, piece: str) -> str:
        """Return what *piece* adds to what was given out, if it is all the text so far."""
        given = self._seen[: self._given]
        if piece.startswith(given):
            self._extended += len(piece) > self._given
        elif given.startswith(piece):  # sent again without the white space at its end
            return ""
        elif self._is_known or self._extended >= CONFIRMED:  # a new beginning
            self._given = 0
        else:  # one piece extended the text by chance
            self._cumulative = False
            return piece
        new = piece[self._given :]
        self._seen, self._given = piece, max(self._given, len(piece))
        return new

    def end(self) -> str:
        """Return what was held back, there being no more: without proof it was new text."""
        return self._new(self._characters.end()) + self._release()

    def _release(self) -> str:
        held, self._held = "".join(self._held), []
        return held if not self._cumulative else ""


class Thoughts:
    """Tells thinking between tags from speaking.

    A tag counts at the beginning of a response only; a closing tag that was never opened means that
    all before it was thinking. White space that touches a tag belongs to the tag.
    """

    def __init__(self, opening: str, closing: str, *, thinks_first: bool = False) -> None:
        self._opening = opening
        self._closing = closing
        self._thinks_first = thinks_first
        self._take = self._begin
        self._held = ""
        self._blank = False  # nothing was said yet, so white space is not said either
        self._spoken: list[str] = []  # as long as a closing tag may still come
        self._supposed: list[str] = []  # all there is, if it is only supposed to be thinking

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Return what *text* adds, as pairs of a kind and a text.

        The kinds are "text", "thinking", and "rethink": all "text" so far was thinking.
        """
        if self._thinks_first:
            self._supposed.append(text)
        if self._held:
            text = self._held + text
            self._held = ""
        found: list[tuple[str, str]] = []
        self._take(text, found)
        return found

    def end(self) -> list[tuple[str, str]]:
        """Return what was held back."""
        held, self._held = self._held, ""
        if self._take == self._think:
            held = held.rstrip()
            return [("thinking", held)] if held else []
        return [("text", held)] if held else []

    def mistaken(self) -> str:
        """Return what was given out as thinking and was none, for no tag has said that it was."""
        return "".join(self._supposed) if self._take == self._think else ""

    def _begin(self, text: str, found: list[tuple[str, str]]) -> None:
        start = text.lstrip()
        opened = start.startswith(self._opening)
        if opened:
            self._thinks_first, self._supposed = False, []
        if self._opening.startswith(start) and not opened:  # or perhaps there is nothing yet
            self._held = text
        elif opened or self._thinks_first:
            self._take = self._think
            self._blank = True
            self._think(start.removeprefix(self._opening), found)
        else:
            self._take = self._wait_for_closing
            self._wait_for_closing(text, found)

    def _think(self, text: str, found: list[tuple[str, str]]) -> None:
        if self._blank:
            text = text.lstrip()
        thought, tag, rest = text.partition(self._closing)
        if tag:
            thought = thought.rstrip()
        else:
            thought, held = _less_a_tag(thought, self._closing)
            kept = thought.rstrip()
            self._held = thought[len(kept) :] + held
            thought = kept
        if thought:
            self._blank = False
            found.append(("thinking", thought))
        if tag:
            self._speak_after(rest, found)

    def _speak_after(self, text: str, found: list[tuple[str, str]]) -> None:
        self._blank = True
        self._thinks_first, self._supposed = False, []
        self._take = self._speak
        self._speak(text, found)

    def _speak(self, text: str, found: list[tuple[str, str]]) -> None:
        if self._blank:
            text = text.lstrip()
            self._blank = not text
        if text:
            found.append(("text", text))

    def _wait_for_closing(self, text: str, found: list[tuple[str, str]]) -> None:
        """Speak, but look out for a closing tag that says it was thinking."""
        if self._closing[0] not in text:  # the usual case
            found.append(("text", text))
            self._spoken.append(text)
            return
        before, tag, rest = text.partition(self._closing)
        if not tag:
            before, self._held = _less_a_tag(before, self._closing)
        if before:
            found.append(("text", before))
            self._spoken.append(before)
        if not tag:
            return
        if self._opening in "".join(self._spoken):  # it speaks about tags
            self._take = self._speak
            found.append(("text", self._closing + rest))
        else:
            found.append(("rethink", ""))
            self._speak_after(rest, found)


def _less_a_tag(text: str, tag: str) -> tuple[str, str]:
    """Split off the end of *text* that may be the beginning of *tag*."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return text[:-size], text[-size:]
    return text, ""
