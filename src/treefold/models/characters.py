"""Characters that came in two: JSON may escape one as two halves, and a stream part them."""


class WholeCharacters:
    """Holds back half a character: JSON may escape it in two pieces."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return *text* with what was held back, less what has to be."""
        if not self._half and (not text or text.isascii()):
            return text
        text = self._half + text
        self._half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return whole(text)

    def end(self) -> str:
        """Return what is left."""
        rest, self._half = whole(self._half), ""
        return rest


def whole(text: str) -> str:
    """Join the halves of characters in *text*; a half without its other is replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
