"""Replace an agent's log with a backup of the original, and restore the backup.

The log is the only copy of a conversation. So its path always refers to a complete file, old or new, and the original
is never lost: the backup is a hard link to the original file. A client that still has the file open then writes to the
backup. On file systems without hard links, the backup is a copy.

Symbolic links are not followed, neither for the log nor for a folder below the agent's root. If the system supports it,
all operations are relative to an open folder, so that another process cannot replace a folder in between.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import IbidemError

BACKUP_ENDING = ".ibidem-backup"
"""Ending of a backup's name, before the number of the second and later backups. It is not `.jsonl`, so that agents and
our readers do not list backups as logs."""
COPY_BYTES = 1 << 20

_AT_FOLDER = os.open in os.supports_dir_fd and os.link in os.supports_dir_fd
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a named pipe would block until another process writes

Lines = Iterable[bytes]


class LogFileError(IbidemError):
    """A log that cannot be replaced or restored. Nothing was changed."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path, self.what = path, what


class FileSignature(NamedTuple):
    """Identity and state of a file. It changes when another process writes to it or replaces it."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def from_status(cls, status: os.stat_result) -> FileSignature:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class _OpenFolder:
    """A folder in which files are opened, linked and replaced."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path, self._descriptor = path, descriptor

    def _file_path(self, name: str) -> str:
        return name if self._descriptor is not None else str(self.path / name)

    def list_names(self) -> list[str]:
        return os.listdir(self.path if self._descriptor is None else self._descriptor)

    def file_status(self, name: str) -> os.stat_result:
        return os.stat(self._file_path(name), dir_fd=self._descriptor, follow_symlinks=False)

    def open_file(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(self._file_path(name), flags | _NO_FOLLOW, mode, dir_fd=self._descriptor)

    def link_file(self, name: str, other: str) -> None:
        folder = self._descriptor
        os.link(self._file_path(name), self._file_path(other), src_dir_fd=folder, dst_dir_fd=folder)

    def replace_file(self, name: str, other: str) -> None:
        folder = self._descriptor
        os.replace(self._file_path(name), self._file_path(other), src_dir_fd=folder, dst_dir_fd=folder)

    def remove_file(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._file_path(name), dir_fd=self._descriptor)

    def copy_metadata(self, name: str, status: os.stat_result) -> None:
        """Set owner, mode and times. The time of a detached log shows later whether the conversation continued."""
        new = self.file_status(name)
        if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid) and hasattr(os, "chown"):
            os.chown(self._file_path(name), status.st_uid, status.st_gid, dir_fd=self._descriptor)
        os.chmod(self._file_path(name), stat.S_IMODE(status.st_mode), dir_fd=self._descriptor)
        os.utime(self._file_path(name), ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=self._descriptor)

    def sync_folder(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):  # some file systems do not support it
                os.fsync(self._descriptor)


class ReplaceableLog:
    """One log on disk. Below the folder `root`, no symbolic link is followed."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = Path(os.path.abspath(path))
        self._root = Path(os.path.abspath(root))

    def read_lines(self) -> Iterator[bytes]:
        """Yield the lines of the log, with their line endings."""
        with self._open_folder() as folder, self._open_log(folder) as stream:
            yield from stream

    def read_signature(self) -> FileSignature:
        with self._open_folder() as folder, self._open_log(folder) as stream:
            return FileSignature.from_status(os.fstat(stream.fileno()))

    def replace(self, signature: FileSignature, edit: Callable[[Lines], Lines], number: int) -> Path:
        """Write the edited lines in place of the log and return the path of the backup, which gets this number.

        If another process writes to the log meanwhile, this raises LogFileError; if the new file cannot be written,
        OSError. In both cases the log has its old content.
        """
        with self._open_folder() as folder:
            name, temporary, backup = self.path.name, f".{self.path.name[:100]}.{secrets.token_hex(4)}.part", ""
            try:
                with self._open_log(folder) as source:
                    self._check_signature(signature, os.fstat(source.fileno()))
                    self._write_file(folder, temporary, edit(source), os.fstat(source.fileno()))
                    backup = self._back_up(folder, source, number)
                self._check_signature(signature, folder.file_status(name))
                folder.replace_file(temporary, name)
            except BaseException:
                for new_name in filter(None, (temporary, backup)):
                    folder.remove_file(new_name)
                raise
            late = folder.file_status(backup)
            if late.st_ino == signature.inode and FileSignature.from_status(late) != signature:
                folder.replace_file(backup, name)  # another process wrote between the last check and the replacement
                self._check_signature(signature, late)
            folder.sync_folder()
            return self.path.with_name(backup)

    def backup_numbers(self) -> set[int]:
        """Return the numbers of the backups. Logs that were replaced together have the same number."""
        with self._open_folder() as folder:
            return {*self._backup_names(folder)}

    def check_unchanged(self, number: int) -> None:
        """Raise LogFileError if the log changed after this backup was made."""
        backup = self._backup_name(number)
        with self._open_folder() as folder, self._open_log(folder) as stream:
            original = folder.file_status(backup)
            if not stat.S_ISREG(original.st_mode):
                raise LogFileError(self.path.with_name(backup), "not a regular file")
            if os.fstat(stream.fileno()).st_mtime_ns != original.st_mtime_ns:
                raise LogFileError(
                    self.path,
                    "the conversation continued after it was detached, and --undo would lose that part. "
                    f"The original is still in {self.path.with_name(backup)}",
                )

    def restore(self, number: int) -> None:
        """Replace the log with this backup. Raises LogFileError if the log changed after it was made."""
        self.check_unchanged(number)
        with self._open_folder() as folder:
            folder.replace_file(self._backup_name(number), self.path.name)
            folder.sync_folder()

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _open_folder(self) -> Iterator[_OpenFolder]:
        """Open the folder of the log, step by step from the root, without following links."""
        steps = self.path.parent.relative_to(self._root).parts
        here = self._root
        for step in steps:
            here /= step
            if here.is_symlink():
                raise LogFileError(here, "a symbolic link. Pass its target instead")
        if not _AT_FOLDER:
            yield _OpenFolder(self.path.parent, None)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY
        descriptor = os.open(self._root, flags | os.O_CLOEXEC)
        try:
            for step in steps:
                inner = os.open(step, flags | _NO_FOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield _OpenFolder(self.path.parent, descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _open_log(self, folder: _OpenFolder) -> Iterator[BinaryIO]:
        """Open the log. Raises LogFileError if it is not a regular file or has other hard links."""
        name = self.path.name
        status = folder.file_status(name)
        if stat.S_ISLNK(status.st_mode):
            raise LogFileError(self.path, "a symbolic link. Pass its target instead")
        if not stat.S_ISREG(status.st_mode):
            raise LogFileError(self.path, "not a regular file")
        with open(folder.open_file(name, os.O_RDONLY | _NO_WAIT), "rb", buffering=COPY_BYTES) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise LogFileError(self.path, "not a regular file")
            if status.st_nlink > 1:
                self._remove_leftovers(folder, status)
                status = os.fstat(stream.fileno())
            if status.st_nlink > 1:
                names = f"has {status.st_nlink} names (hard links), and the others would keep the thinking"
                raise LogFileError(self.path, f"{names}. Remove them first")
            yield stream

    def _remove_leftovers(self, folder: _OpenFolder, status: os.stat_result) -> None:
        """Remove backups that are hard links to the current log: an earlier run was killed before it replaced it."""
        for name in self._backup_names(folder).values():
            other = folder.file_status(name)
            if (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino):
                folder.remove_file(name)

    def _backup_name(self, number: int) -> str:
        return f"{self.path.name}{BACKUP_ENDING}" + (f"-{number}" if number > 1 else "")

    def _backup_names(self, folder: _OpenFolder) -> dict[int, str]:
        """Return the names of the backups by number."""
        pattern = re.compile(re.escape(f"{self.path.name}{BACKUP_ENDING}") + r"(?:-(\d{1,6}))?")
        return {int(match[1] or 1): name for name in folder.list_names() if (match := pattern.fullmatch(name))}

    def _check_signature(self, signature: FileSignature, status: os.stat_result) -> None:
        if FileSignature.from_status(status) != signature:
            raise LogFileError(self.path, "changed while it was read. Quit the client and run this again")

    def _back_up(self, folder: _OpenFolder, source: BinaryIO, number: int) -> str:
        name = self._backup_name(number)
        try:
            folder.link_file(self.path.name, name)
        except OSError:  # this file system has no hard links, or does not allow this one
            source.seek(0)
            self._write_file(folder, name, iter(lambda: source.read(COPY_BYTES), b""), os.fstat(source.fileno()))
        return name

    def _write_file(self, folder: _OpenFolder, name: str, data: Lines, status: os.stat_result) -> None:
        """Create a file with this data and flush it to disk. Nothing remains if that fails."""
        descriptor = folder.open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with open(descriptor, "wb", buffering=COPY_BYTES) as stream:
                stream.writelines(data)
                stream.flush()
                os.fsync(stream.fileno())
            folder.copy_metadata(name, status)
        except BaseException:
            folder.remove_file(name)
            raise
