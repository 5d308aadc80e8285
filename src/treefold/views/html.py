"""Export a run as one HTML file: the viewer's page, with the data embedded.

The file needs no server and loads nothing. It is built from the files that ``views.web`` serves;
its content security policy allows only that script, whatever the data contains.
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
_ESCAPES: Final = str.maketrans({
    "<": "\\u003c",  # otherwise a text could close the script element
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
})  # fmt: skip


def page(data: Mapping[str, Any], *, at: float | None = None) -> str:
    """Return the file for *data*: the journal, trees, rows, details and flame of a run.

    *at* is the time of *data*, in seconds since the epoch; the default is now.

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
    embedded = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    )
    head, count = _LINKED.subn(lambda _: embedded, _asset("index.html"))
    if count != 1:
        raise ValueError("index.html must link its icon, its style and its script, in that order")
    dated = {**data, "at": time.time() if at is None else at}
    encoded = json.dumps(dated, ensure_ascii=False, allow_nan=False).translate(_ESCAPES)
    end = (
        f'<script type="application/json" id="treefold-data">{encoded}</script>\n'
        f'<script type="module">{script}</script>\n</body>'
    )
    before, _, after = head.rpartition("</body>")
    return before + end + after


def _script() -> str:
    """Return all modules as one script, each as a function, after the modules that it imports."""
    bundled: dict[str, str] = {}
    _bundle(_ENTRY, bundled)
    script = "".join(bundled.values())
    if "</script" in script.lower():
        raise ValueError("an embedded script must not contain '</script'")
    return script


def _bundle(name: str, bundled: dict[str, str]) -> None:
    text = _asset(name)
    for found in _IMPORT.finditer(text):
        if found[2] not in bundled:
            _bundle(found[2], bundled)
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub("", _IMPORT.sub(_bundled_import, text))
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise ValueError(f"{name} has an import or export that cannot be bundled")
    bundled[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def _bundled_import(found: re.Match[str]) -> str:
    return f"const {{{found[1]}}} = {_variable(found[2])};\n"


def _variable(name: str) -> str:
    return f"in_{name.removesuffix('.js')}"


def _asset(name: str) -> str:
    return (files("treefold.views") / "web" / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
