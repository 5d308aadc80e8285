"""What a caller sees when it has a patch applied."""

import os
from pathlib import Path

import pytest

from patching import apply, numbered
from treefold.core.errors import InvalidArgumentsError, InvalidValueError
from treefold.toolbox import ApplyDiffPatch, FileError, apply_diff_patch

PATCH = "--- a/other\n+++ b/other\n@@ -1,2 +1,3 @@\n one\n-two\n+TWO\n+three\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.txt"
    path.write_bytes(b"one\ntwo\n")
    return path


def test_a_patch_in_a_file_is_applied(file: Path, tmp_path: Path):
    (tmp_path / "x.diff").write_text(PATCH)
    said = apply(file, tmp_path / "x.diff")
    assert said == f"Patched {file}: 1 hunk by git; 2 lines added, 1 removed."
    assert file.read_bytes() == b"one\nTWO\nthree\n"


def test_a_patch_may_be_given_as_text(file: Path):
    apply(file, f"Here it is:\n```diff\n{PATCH}```\nDone.")
    assert file.read_bytes() == b"one\nTWO\nthree\n"


def test_the_new_version_goes_where_it_is_wanted_and_the_file_stays(file: Path, tmp_path: Path):
    file.chmod(0o751)
    said = apply(file, PATCH, tmp_path / "new" / "out.txt")
    assert said.endswith(f" 1 removed. The new version is in {tmp_path}/new/out.txt.")
    assert (tmp_path / "new" / "out.txt").read_bytes() == b"one\nTWO\nthree\n"
    assert (tmp_path / "new" / "out.txt").stat().st_mode & 0o777 == 0o751
    assert file.read_bytes() == b"one\ntwo\n"


def test_what_was_at_the_output_is_replaced_and_keeps_its_permissions(file: Path, tmp_path: Path):
    (tmp_path / "out").write_text("old")
    (tmp_path / "out").chmod(0o600)
    apply(file, PATCH, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"one\nTWO\nthree\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("old", ["/dev/null", "a/new"])
def test_a_file_that_is_not_there_is_created(tmp_path: Path, old: str):
    path = tmp_path / "folder" / "new"
    said = apply(path, f"--- {old}\n+++ b/new\n@@ -0,0 +1,2 @@\n+one\n+two\n")
    assert said == f"Created {path}: 1 hunk by git; 2 lines added, 0 removed."
    assert path.read_bytes() == b"one\ntwo\n"
    said = apply(tmp_path / "none", "@@ -0,0 +1 @@\n+x\n", tmp_path / "out")
    assert said == f"Created {tmp_path}/out: 1 hunk by git; 1 line added, 0 removed."
    assert not (tmp_path / "none").exists()


def test_an_empty_file_takes_a_patch_that_creates_it(tmp_path: Path):
    (tmp_path / "empty").touch()
    apply(tmp_path / "empty", "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+one\n")
    assert (tmp_path / "empty").read_bytes() == b"one\n"


def test_a_file_that_loses_all_its_lines_is_left_empty(file: Path):
    apply(file, "@@ -1,2 +0,0 @@\n-one\n-two\n")
    assert file.read_bytes() == b""


def test_a_patch_that_creates_what_exists_is_refused(file: Path):
    with pytest.raises(FileError, match="the patch creates .*, which exists and is not empty"):
        apply(file, "--- /dev/null\n+++ b/file.txt\n@@ -0,0 +1 @@\n+one\n")
    assert file.read_bytes() == b"one\ntwo\n"


def test_a_patch_of_a_file_that_is_not_there_is_refused_with_the_names_that_are(file: Path):
    with pytest.raises(FileError, match="does not exist: .* the nearest names are 'file.txt'"):
        apply(file.with_name("fil.txt"), PATCH)
    with pytest.raises(FileError, match="x.diff' does not exist"):
        apply(file, file.with_name("x.diff"))


def test_a_hunk_that_does_not_fit_is_named_and_nothing_is_changed(file: Path):
    patch = f"{PATCH}@@ -7,2 +8,2 @@ f()\n seven\n-eight\n+EIGHT\n"
    with pytest.raises(FileError) as caught:
        apply(file, patch)
    assert str(caught.value) == (
        f"1 of 2 hunks cannot be applied to '{file}', and nothing was changed: hunk 2 ('@@ -7,2"
        " +8,2 @@ f()'): the lines that it expects are not in the file. An agent could not"
        " apply them either: ModelProviderException:"
        " the script of 'scripted' has no more replies"
    )
    assert file.read_bytes() == b"one\ntwo\n"


def test_not_more_than_a_few_hunks_are_named(tmp_path: Path):
    (tmp_path / "file").write_bytes(numbered(10))
    with pytest.raises(FileError) as caught:
        apply(tmp_path / "file", "@@ -1 +1 @@\n-x\n+y\n" * 100)
    assert str(caught.value).startswith("100 of 100 hunks cannot")
    assert "; …. An agent" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_without_git_a_patch_is_applied_all_the_same(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    said = apply(file, PATCH)
    assert said == (
        f"Patched {file}: 1 hunk without git (git is not installed); 2 lines added, 1 removed."
    )
    assert file.read_bytes() == b"one\nTWO\nthree\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1"])
@pytest.mark.parametrize("patch_encoding", ["utf-8", "utf-16", "latin-1", None])
def test_encodings_may_differ_and_the_file_keeps_its_own(
    tmp_path: Path, encoding: str, patch_encoding: str | None
):
    mark = "\ufeff" if encoding.startswith("utf-16") else ""
    path = tmp_path / "file"
    path.write_bytes(f"{mark}naïve\r\ncafé\r\n".encode(encoding))
    patch = "@@ -1,2 +1,3 @@\n naïve\n+thé\n café\n"
    if patch_encoding:
        (tmp_path / "patch").write_bytes(patch.encode(patch_encoding))
    apply(path, tmp_path / "patch" if patch_encoding else patch)
    assert path.read_bytes() == f"{mark}naïve\r\nthé\r\ncafé\r\n".encode(encoding)


def test_a_character_that_the_encoding_lacks_is_refused(tmp_path: Path):
    path = tmp_path / "latin"
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(
        InvalidArgumentsError, match="patch contains '.u20ac', which a file in Latin-1"
    ):
        apply(path, "@@ -1 +1,2 @@\n café\n+5 €\n")


def test_a_binary_file_is_refused(tmp_path: Path):
    (tmp_path / "image").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    with pytest.raises(FileError, match="is a binary file"):
        apply(tmp_path / "image", PATCH)


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    """A root, beside a secret that links in it lead to."""
    (tmp_path / "secret").write_text("one\ntwo\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("one\ntwo\n")
    (root / "patch").write_text(PATCH)
    (root / "to_secret").symlink_to(tmp_path / "secret")
    (root / "to_outside").symlink_to(tmp_path)
    return root


@pytest.mark.parametrize("path", ["../secret", "to_secret", "to_outside/secret", "/etc/passwd"])
@pytest.mark.parametrize("argument", ["file", "patch", "output"])
def test_no_path_leads_out_of_the_root(jail: Path, argument: str, path: str):
    args = {"file": "file", "patch": "patch", argument: path}
    with pytest.raises(FileError, match="leads out of .*/root', .* give a path inside"):
        apply(args["file"], args["patch"], args.get("output"), root=jail)
    assert (jail.parent / "secret").read_text() == "one\ntwo\n"
    assert (jail / "file").read_text() == "one\ntwo\n"
    assert sorted(os.listdir(jail.parent)) == ["root", "secret"]


def test_paths_start_at_the_root(jail: Path):
    apply("file", "patch", "out", root=jail)
    assert (jail / "out").read_text() == "one\nTWO\nthree\n"
    assert f"start at {jail}, and no path may leave it" in ApplyDiffPatch(root=jail).description


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path):
    with pytest.raises(InvalidValueError, match="root must be an existing folder, got"):
        ApplyDiffPatch(root=tmp_path / "none")


def test_a_file_of_20_megabytes_is_patched(tmp_path: Path):
    path = tmp_path / "large"
    line = b"x" * 98 + b"\r\n"
    path.write_bytes(line * 100_000 + b"here\r\n" + line * 100_000)
    said = apply(path, "@@ -9,3 +9,3 @@\n " + "x" * 98 + "\n-here\n+there\n")
    assert said == f"Patched {path}: 1 hunk by git; 1 line added, 1 removed."
    assert path.stat().st_size == 20_000_007
    with path.open("rb") as file:
        file.seek(10_000_000)
        assert file.read(9) == b"there\r\nxx"


def test_the_arguments_are_those_that_a_model_is_told():
    assert list(apply_diff_patch.input_schema["properties"]) == ["file", "patch", "output"]
    assert apply_diff_patch.input_schema["required"] == ["file", "patch"]
