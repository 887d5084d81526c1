"""Answers on their way: a folder of finished parts beside the file that they will become."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from bayeslim.cli.answers import Answers, answer_format
from bayeslim.runs import json_document
from bayeslim.storage import write_atomically

__all__ = ["PredictionParts"]

MANIFEST = "manifest.json"


class PredictionParts:
    """The finished parts of a file, each whole or absent, whoever writes them.

    `answers.csv.parts/` holds 00000000.csv, 00000001.csv, ... and a manifest: what the answers follow from. `join`
    makes one file of the parts and removes the folder. Whatever stops a process, only parts that were not finished are
    lost, and there is never half a file at `out`.

    Args:
        out: the file to be: .csv, .parquet or .npz.

    Raises:
        ValueError: for another suffix.
        FileNotFoundError: if there is no folder to write it to.

    Example:
        >>> parts = PredictionParts(Path("answers.csv"))
        >>> parts.begin({"seed": 0}, start_over=False)
        >>> parts.write(0, {"prediction": np.array([1.0])})
        >>> parts.join()
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.format = answer_format(out)
        if not out.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {out.parent} for --out: make it first")
        self.folder = out.with_name(f"{out.name}.parts")

    def begin(self, manifest: Mapping[str, str | int], start_over: bool) -> int:
        """Make the folder, or go on with the one that is there if it holds parts of the same answers.

        Args:
            manifest: all that the answers follow from.
            start_over: remove parts of other answers instead of refusing.

        Returns:
            How many parts are finished.

        Raises:
            FileExistsError: if the folder holds other answers, or something else.
        """
        file = self.folder / MANIFEST
        if file.is_file():
            changed = _differences(file, manifest)
            if not changed:
                return len(self.finished())
            if not start_over:
                raise FileExistsError(
                    f"{self.folder} holds unfinished answers of another call ({'; '.join(changed)}): repeat that call "
                    "to finish them, or pass --overwrite to start over"
                )
            self.discard()
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise FileExistsError(
                f"{self.folder} is in the way and not of this command: move it, or choose another --out"
            )
        write_atomically(file, json_document(manifest))
        return 0

    def has(self, index: int) -> bool:
        """Whether part `index` is finished."""
        return self._path(index).is_file()

    def finished(self) -> list[Path]:
        """The finished parts, in order."""
        return sorted(self.folder.glob(f"[0-9]*{self.out.suffix}"))

    def write(self, index: int, columns: Answers) -> None:
        """Write part `index`, counted from 0.

        Raises:
            OSError: if it cannot be written, with the number of the system's error.
        """
        content = self.format.part(columns, index == 0)
        try:
            write_atomically(self._path(index), content)
        except OSError as error:  # the cause, which has the number, does not reach another process
            number = error.errno or getattr(error.__cause__, "errno", None)
            raise (error if number is None else OSError(number, str(error))) from error

    def join(self) -> None:
        """Write `out` from all parts, memory bounded by one of them, and remove the folder.

        Raises:
            FileNotFoundError: if a part between two others is missing.
        """
        parts = self.finished()
        absent = [index for index, part in enumerate(parts) if part != self._path(index)]
        if absent or not parts:
            raise FileNotFoundError(f"{self._path(absent[0] if absent else 0)} is missing: give the same command again")
        temporary = self.folder / f".joined.{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as file:
                self.format.join(parts, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.out)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.discard()

    def discard(self) -> None:
        """Remove the folder and all in it, the manifest last: what a kill leaves behind is still known as ours."""
        if self.folder.is_dir():
            for file in sorted(self.folder.iterdir(), key=lambda file: file.name == MANIFEST):
                file.unlink(missing_ok=True)
            self.folder.rmdir()

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:08d}{self.out.suffix}"


def _differences(file: Path, manifest: Mapping[str, str | int]) -> list[str]:
    """In what a stored manifest differs, for a message."""
    try:
        before = json.loads(file.read_bytes())
        pairs = [(name, before.get(name), manifest.get(name)) for name in {**before, **manifest}]
    except (ValueError, TypeError, AttributeError):
        return ["its manifest is damaged"]
    return [f"{name} was {old!r}, now {new!r}" for name, old, new in pairs if old != new]
