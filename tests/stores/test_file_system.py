"""Where a journal may be, by what Linux says of its mounts."""

import subprocess
from pathlib import Path

import pytest

from treefold import SqliteStore, StoreError
from treefold.stores.file_system import (
    file_system_of,
    is_network,
    read_mounts,
    refuse_network,
)

LAPTOP = """\
22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
23 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
31 28 0:26 / /run rw,nosuid,nodev shared:5 master:3 - tmpfs tmpfs rw,size=1608652k,mode=755
97 28 259:1 / /boot/efi rw,relatime shared:49 - vfat /dev/nvme0n1p1 rw,fmask=0077
300 28 0:51 / /mnt/nas rw,relatime shared:160 - nfs4 nas.example:/export rw,vers=4.2
301 300 0:52 / /mnt/nas/Ann's\\040files rw,relatime - cifs //nas.example/ann rw,vers=3.1.1
302 28 0:53 / /home/ann/remote rw,nosuid,nodev - fuse.sshfs ann@host:/home/ann rw,user_id=1000
303 28 0:54 / /home/ann/cloud rw,nosuid,nodev - fuse.rclone drive: rw,user_id=1000
304 28 259:5 / /mnt/nas2 rw - xfs /dev/nvme0n1p5 rw
305 28 0:60 / /mnt/back\\134slash\\011tab rw - smb3 //nas.example/b rw
306 28 0:61 / /mnt/twice rw - nfs nas.example:/twice rw
307 306 259:6 / /mnt/twice rw - btrfs /dev/nvme0n1p6 rw
308 28 0:62 / /mnt/café rw - fuse.ntfs-3g /dev/sda1 rw
"""

CONTAINER = """\
600 500 0:70 / / rw,relatime master:200 - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w
601 600 0:71 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
610 600 0:80 / /workspace rw,relatime - 9p workspace rw,trans=virtio,version=9p2000.L
611 600 8:1 /var/lib/data /data rw,relatime - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("path", "mounts", "kind"),
    [
        ("/home/ann/run.db", LAPTOP, "ext4"),
        ("/run.db", LAPTOP, "ext4"),
        ("/run/user/run.db", LAPTOP, "tmpfs"),
        ("/mnt/nas/run.db", LAPTOP, "nfs4"),
        ("/mnt/nas", LAPTOP, "nfs4"),
        ("/mnt/nas/Ann's files/run.db", LAPTOP, "cifs"),
        ("/mnt/nas/Ann's/run.db", LAPTOP, "nfs4"),
        ("/mnt/nas2/run.db", LAPTOP, "xfs"),
        ("/home/ann/remote/a/b.db", LAPTOP, "fuse.sshfs"),
        ("/home/ann/remotely/b.db", LAPTOP, "ext4"),
        ("/home/ann/cloud/b.db", LAPTOP, "fuse.rclone"),
        ("/mnt/back\\slash\ttab/b.db", LAPTOP, "smb3"),
        ("/mnt/twice/b.db", LAPTOP, "btrfs"),
        ("/mnt/café/b.db", LAPTOP, "fuse.ntfs-3g"),
        ("/workspace/run.db", CONTAINER, "9p"),
        ("/data/run.db", CONTAINER, "ext4"),
        ("/tmp/run.db", CONTAINER, "overlay"),
        ("/tmp/run.db", "", None),
        ("/tmp/run.db", "not at all\n1 2 3 4 /tmp rw\n\n1 2 - \n", None),
    ],
)
def test_a_path_is_on_what_is_mounted_nearest_above_it(path: str, mounts: str, kind: str | None):
    assert file_system_of(path, mounts) == kind


def test_what_is_on_another_machine_is_known_by_its_type():
    remote = "nfs nfs4 cifs smb3 smbfs 9p afs ceph glusterfs lustre fuse.sshfs fuse.rclone"
    more = "fuse.glusterfs fuse.s3fs fuse.gcsfuse fuse.juicefs fuse.ceph-fuse davfs"
    local = "ext4 xfs btrfs zfs tmpfs overlay vfat apfs f2fs bcachefs fuse fuseblk fuse.ntfs-3g"
    assert [kind for kind in f"{remote} {more}".split() if not is_network(kind)] == []
    assert [kind for kind in local.split() if is_network(kind)] == []


def test_a_journal_on_another_machine_is_refused_with_the_reason_and_the_remedy():
    refuse_network("/mnt/nas2/run.db", LAPTOP)
    with pytest.raises(StoreError) as refused:
        refuse_network("/mnt/nas/run.db", LAPTOP)
    assert str(refused.value) == (
        "/mnt/nas/run.db: it is on a network file system (nfs4), which has no shared memory, and a "
        "journal (SQLite's write-ahead log) needs that; give a path on a local disk"
    )


def in_mount_table(path: str) -> bool:
    """Whether Linux lists *path* as a mount point of this process."""
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    return any(line.split(" ")[1] == path for line in lines)


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="only Linux says so")
@pytest.mark.skipif(
    not in_mount_table("/"), reason="/ is no mount point, as in a chroot: the table says nothing"
)
def test_this_machine_says_the_same_as_its_own_command(tmp_path: Path):
    for path in (str(tmp_path.resolve()), "/", "/proc", "/proc/self"):
        told = subprocess.run(
            ["df", "--output=fstype", path], capture_output=True, text=True, check=True, timeout=60
        )
        if (kind := told.stdout.split()[-1]) != "-":
            assert file_system_of(path, read_mounts()) == kind
    with SqliteStore(tmp_path / "run.db") as store:
        assert store.trees() == []
