"""The environment variables that programs which work for an agent inherit.

What such a program prints goes to the model and into the journal. So this is a list of what
programs need, and not all variables but those that are known to be secret: passwords of databases,
tokens and credentials of clouds have too many names.
"""

from collections.abc import Mapping
from typing import Final

_NAMES: Final = frozenset({
    # the user, and where programs keep their files
    "HOME", "LOGNAME", "SHELL", "TEMP", "TMP", "TMPDIR", "USER",
    # how text and times look
    "LANG", "LANGUAGE", "LOCALE_ARCHIVE", "TERM", "TZ",
    # where programs and libraries are
    "CARGO_HOME", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "DYLD_LIBRARY_PATH", "GEM_HOME", "GEM_PATH",
    "GOPATH", "GOROOT", "JAVA_HOME", "LD_LIBRARY_PATH", "NODE_PATH", "NVM_DIR", "PATH",
    "PYENV_ROOT", "PYENV_VERSION", "PYTHONPATH", "RUSTUP_HOME", "VIRTUAL_ENV",
    # which certificates are trusted
    "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NIX_SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
})  # fmt: skip
_PREFIXES: Final = ("LC_", "XDG_")
_PROXIES: Final = frozenset({"ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"})


def is_inherited(name: str, value: str) -> bool:
    """Whether programs that work for an agent have this variable of ours.

    Example:
        >>> is_inherited("LC_TIME", "C"), is_inherited("PGPASSWORD", "hunter2")
        (True, False)
        >>> is_inherited("https_proxy", "http://proxy:80")
        True
        >>> is_inherited("https_proxy", "http://me:hunter2@proxy:80")
        False
    """
    if name.upper() in _PROXIES:
        return "@" not in value
    return name in _NAMES or name.startswith(_PREFIXES)


def inherited_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *env* that programs which work for an agent have, too."""
    return {name: value for name, value in env.items() if is_inherited(name, value)}
