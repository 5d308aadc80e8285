"""Files that are not plain: encodings, links, permissions, devices, full disks and large ones."""

import os
import resource
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from editing import Call, as_one_caller, call, edit
from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox import FileError, TextEditor
from treefold.toolbox.editing.files import read_file, read_if_exists, remove_file, write_file
from treefold.toolbox.editing.paths import resolve_path

TEXT = "naïve\r\ncafé\r\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1"])
def test_an_edit_keeps_encoding_and_line_ends(tmp_path: Path, encoding: str):
    mark = "\ufeff" if encoding.startswith("utf-16") else ""
    path = tmp_path / "text"
    path.write_bytes((mark + TEXT).encode(encoding))

    assert edit("view", path) == "     1\tnaïve\n     2\tcafé"
    edit("str_replace", path, old_str="naïve\ncafé", new_str="naïve\nthé\ncafé")

    assert path.read_bytes() == (mark + "naïve\r\nthé\r\ncafé\r\n").encode(encoding)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\nc\rd", "a\nb\nc\nd", "a\nB\nc\nd", b"a\r\nB\nc\rd"),
        (b"a\rb\rc", "b", "b\nx", b"a\rb\rx\rc"),
        (b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc"),
        (b"a\rb\nc", "b", "", b"a\r\r\nc"),
        (b"a\rb\nc", "b", "\nb", b"a\r\r\nb\nc"),
        (b"one", "one", "one\ntwo", b"one\ntwo"),
        (b"a\nb\xe9\n", "a", "z", b"z\nb\xe9\n"),
    ],
)
def test_only_what_is_touched_changes(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
):
    path = tmp_path / "mixed"
    path.write_bytes(before)
    edit("str_replace", path, old_str=old, new_str=new)
    assert path.read_bytes() == after


def test_a_character_that_the_encoding_lacks_is_refused(tmp_path: Path):
    path = tmp_path / "latin"
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(
        InvalidArgumentsError, match="insert_text contains '.u20ac', which a file in L"
    ):
        edit("insert", path, insert_line=1, insert_text="5 €")
    for text in ("half \ud83d", "nul \0"):
        with pytest.raises(InvalidArgumentsError, match="file_text contains"):
            edit("create", path, file_text=text)
    assert path.read_bytes() == b"caf\xe9\n"


@pytest.mark.parametrize(
    "raw", [b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xfe\0\0a\0\0\0", b"\xff\x01\x02\xfe", b"a\0b\0"]
)
def test_a_binary_file_is_not_shown(tmp_path: Path, raw: bytes):
    (tmp_path / "image").write_bytes(raw)
    with pytest.raises(FileError, match="is a binary file of"):
        edit("view", tmp_path / "image")


def test_permissions_are_kept(tmp_path: Path):
    path = tmp_path / "script.sh"
    path.write_text("echo one\n")
    path.chmod(0o4751)
    edit("str_replace", path, old_str="one", new_str="two")
    assert path.stat().st_mode & 0o7777 == 0o4751
    edit("create", path, file_text="echo three\n")
    assert path.stat().st_mode & 0o7777 == 0o4751


def test_a_new_file_has_the_permissions_that_the_process_gives(tmp_path: Path):
    old = os.umask(0o027)
    try:
        edit("create", tmp_path / "new", file_text="")
    finally:
        os.umask(old)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(tmp_path: Path):
    path = tmp_path / "fixed"
    path.write_text("one\n")
    path.chmod(0o444)
    with pytest.raises(FileError, match="is read-only; have its permissions changed"):
        edit("create", path, file_text="two\n")
    assert path.read_text() == "one\n"


def test_a_link_stays_a_link_and_its_file_is_edited(tmp_path: Path):
    (tmp_path / "real").write_text("one\n")
    (tmp_path / "link").symlink_to("real")
    edit("str_replace", tmp_path / "link", old_str="one", new_str="two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "two\n"


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    """A root, beside a secret that links in it lead to."""
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "outside").mkdir()
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file").write_text("one\n")
    (root / "to_file").symlink_to(tmp_path / "secret")
    (root / "to_folder").symlink_to("../outside")
    (root / "to_nothing").symlink_to(tmp_path / "outside" / "made")
    (root / "within").symlink_to("inner")
    return root


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "inner/../../secret",
        "/etc/passwd",
        "to_file",
        "to_folder/new",
        "to_folder/deep/new",
        "to_nothing",
        "within/../../secret",
        "missing/../../secret",
        "~/secret",
        "../root2",
    ],
)
@pytest.mark.parametrize("command", ["view", "create", "str_replace", "insert", "undo_edit"])
def test_nothing_leads_out_of_the_root(jail: Path, command: str, path: str):
    args = {"file_text": "x", "old_str": "secret", "insert_line": 0, "insert_text": "x"}
    with pytest.raises(FileError, match="leads out of .*/root', .* give a path inside"):
        call(TextEditor(jail), command, path, **args)
    assert (jail.parent / "secret").read_text() == "secret\n"
    assert list((jail.parent / "outside").iterdir()) == []


def test_what_is_inside_the_root_can_be_reached_in_every_way(jail: Path):
    for path in ("inner/file", "within/file", "./inner/../inner/file", str(jail / "inner/file")):
        assert call(TextEditor(jail), "view", path) == "     1\tone"
    call(TextEditor(str(jail)), "create", "a/b", file_text="x")
    assert (jail / "a" / "b").read_text() == "x"
    (jail.parent / "alias").symlink_to(jail)
    assert call(TextEditor(jail.parent / "alias"), "view", "inner/file") == "     1\tone"


def test_a_folder_that_becomes_a_link_after_it_was_looked_at_is_not_followed(jail: Path):
    existing, new = resolve_path("inner/file", jail), resolve_path("inner/deep/new", jail)
    before = read_file(existing)
    (jail / "inner").rename(jail / "moved")
    (jail / "inner").symlink_to("../outside")

    for act in (
        lambda: read_file(existing),
        lambda: write_file(existing, b"x", before),
        lambda: write_file(new, b"x", None),
        lambda: remove_file(existing, before),
    ):
        with pytest.raises(FileError, match="a part of the path is a file or a link"):
            act()
    assert list((jail.parent / "outside").iterdir()) == []


def test_a_file_that_others_changed_after_it_was_read_is_not_overwritten(tmp_path: Path):
    path = tmp_path / "shared"
    place = resolve_path(str(path), None)
    assert read_if_exists(place) is None
    path.write_text("theirs")
    with pytest.raises(FileError, match="changed by another writer at the same time"):
        write_file(place, b"mine", None)
    before = read_file(place)
    path.write_text("theirs, too")
    with pytest.raises(FileError, match="changed by another writer at the same time"):
        write_file(place, b"mine", before)
    path.unlink()
    with pytest.raises(FileError, match="changed by another writer at the same time"):
        write_file(place, b"mine", before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("", "path is empty"),
        ("a\0b", "contains a NUL character"),
        ("a\ud83d", "half of a surrogate pair"),
        ("x" * 300, "too long"),
        ("/".join(["x" * 200] * 30), "too long|does not exist"),
    ],
)
def test_a_path_that_cannot_be_is_refused_in_words(tmp_path: Path, path: str, told: str):
    with pytest.raises(ValueError, match=told) as caught:
        call(TextEditor(tmp_path), "view", path)
    assert len(str(caught.value)) < 1500


def test_a_name_that_is_too_long_is_not_created(tmp_path: Path):
    with pytest.raises(FileError, match="too long"):
        call(TextEditor(tmp_path), "create", "x" * 300, file_text="x")
    call(TextEditor(tmp_path), "create", "x" * 255, file_text="x")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]


def test_special_files_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    refused = {
        "pipe": "is a pipe, not a text file",
        "socket": "is a socket, not a text file",
        "loop": "in a loop",
        "/dev/zero": "is a device, not a text file",
        "file/inner": "a part of the path is a file",
    }
    for name, told in refused.items():
        for command in ("view", "create", "insert"):
            args = {"file_text": "x", "insert_line": 0, "insert_text": "x"}
            with pytest.raises(FileError, match=told):
                edit(command, tmp_path / name, **args)
    with pytest.raises(FileError, match="is a folder, not a text file; give the path of a file in"):
        edit("create", tmp_path, file_text="x")


@pytest.fixture
def little_room() -> Iterator[None]:
    """No file can grow beyond 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("little_room")
def test_without_room_nothing_changes_and_nothing_is_left_behind(tmp_path: Path):
    path = tmp_path / "full"
    path.write_text("one\n")
    with pytest.raises(FileError, match="the disk is full.* Nothing was changed"):
        edit("str_replace", path, old_str="one", new_str="x" * 100_000)
    with pytest.raises(FileError, match="the disk is full"):
        edit("create", tmp_path / "other", file_text="x" * 100_000)
    assert path.read_text() == "one\n"
    assert [child.name for child in tmp_path.iterdir()] == ["full"]


def test_a_file_of_20_megabytes_is_edited_in_a_few_times_its_size(tmp_path: Path):
    path = tmp_path / "large"
    line = b"0123456789 \xf0\x9f\x99\x82 " + b"x" * 83 + b"\r\n"  # one character in it is wide
    path.write_bytes(line * 100_000 + b"here\r\n" + line * 100_000)
    size = path.stat().st_size
    assert size > 20_000_000

    def work(do: Call) -> list[str]:
        return [
            do("view", view_range=[100_001, 100_001]),
            do("str_replace", old_str="\nhere\n", new_str="\nthere\n"),
            do("undo_edit"),
            do("view"),
        ]

    tracemalloc.start()
    try:
        said = as_one_caller(path, work)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert said[0] == "100001\there"
    assert "100001\tthere\n" in said[1]
    assert len(said[3]) < 31_000
    assert path.stat().st_size == size
    assert peak < 4 * size
