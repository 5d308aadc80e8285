"""One run as one HTML file: the viewer's own page, with its data inside.

Needs no server and loads nothing. The page is put together from the files that ``views.web``
serves; its policy lets a browser run that script and no other, whatever the data holds.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

_ENTRY: Final = "app.js"
_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(
    r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE
)
_LINKED: Final = re.compile(
    r'<link rel="icon"[^>]*>\n<link rel="stylesheet"[^>]*>\n<script type="module"[^>]*></script>\n'
    r'(?:<link rel="modulepreload"[^>]*>\n)*'
)
_ENDS: Final = str.maketrans({
    "<": "\\u003c",  # or a text could end the element that it stands in
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
})  # fmt: skip


def page(data: Mapping[str, Any], *, at: float | None = None) -> str:
    """Return the file for *data*: the journal, trees, rows, details and flame of a run.

    *at* is when that was so, in seconds since the epoch: now, unless somebody knows better.

    Example:
        >>> journal = {"name": "run.db", "driven": False, "version": "0.1.0"}
        >>> data = {"journal": journal, "trees": [], "rows": [], "details": {}, "flame": {}}
        >>> page(data).splitlines()[0]
        '<!doctype html>'
    """
    style, script = _asset("style.css"), _script()
    policy = "; ".join((
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ))  # fmt: skip
    inside = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    )
    head, count = _LINKED.subn(lambda _: inside, _asset("index.html"))
    if count != 1:
        raise ValueError("index.html has to name its icon, its style and its script, in that order")
    held = {**data, "at": time.time() if at is None else at}
    written = json.dumps(held, ensure_ascii=False, allow_nan=False).translate(_ENDS)
    end = (
        f'<script type="application/json" id="treefold-data">{written}</script>\n'
        f'<script type="module">{script}</script>\n</body>'
    )
    before, _, after = head.rpartition("</body>")
    return before + end + after


def _script() -> str:
    """Return all modules as one, each in a function of its own, after those that it imports."""
    written: dict[str, str] = {}
    _add(_ENTRY, written)
    script = "".join(written.values())
    if "</script" in script.lower():
        raise ValueError("a script that is put into a page cannot hold its own end")
    return script


def _add(name: str, written: dict[str, str]) -> None:
    text = _asset(name)
    for found in _IMPORT.finditer(text):
        if found[2] not in written:
            _add(found[2], written)
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(_taken, text))
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise ValueError(f"{name} imports or exports in a way that cannot be put into one file")
    written[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def _taken(found: re.Match[str]) -> str:
    return f"const {{{found[1]}}} = {_variable(found[2])};\n"


def _variable(name: str) -> str:
    return f"in_{name.removesuffix('.js')}"


def _asset(name: str) -> str:
    return (files("treefold.views") / "web" / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
