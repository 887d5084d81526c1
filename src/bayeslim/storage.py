"""Files that are either whole or absent: tensors and JSON in one checksummed safetensors file.

Nothing here unpickles. A file that was cut short, edited or damaged is refused with a message.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialise
from safetensors.torch import save as serialise
from torch import Tensor

__all__ = [
    "FORMAT_VERSION",
    "DamagedFile",
    "copy_atomically",
    "json_text",
    "named_file",
    "read_json",
    "read_tensors",
    "remove_leftovers",
    "sync_folder",
    "write_atomically",
    "write_tensors",
]

FORMAT_VERSION = 1


class DamagedFile(ValueError):
    """A file that was cut short, edited or hit by a fault of the disk."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` so that `path` holds either all of it or what it held before.

    The bytes go to a temporary file in the same folder, are flushed to disk, and the file is renamed
    over `path`. A symbolic link stays, and the file that it points to is replaced.

    Raises:
        OSError: if the folder cannot be made or written, the disk is full, or something else than a file stands
            there (a folder, a device, a pipe); the message names it.
    """
    path = _file_behind(path)
    folder, temporary = path.parent, _temporary(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less the umask
    except OSError as error:
        raise OSError(f"cannot write to the folder {folder} ({error.strerror}): choose another `path`") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise OSError(
            f"cannot write {path} ({error.strerror or error}), which is left as it was: make room on the disk, or "
            "choose another folder"
        ) from error
    sync_folder(folder)


def copy_atomically(source: Path, target: Path) -> None:
    """Let `target` hold what `source` holds, or what it held before: by a second link, where the system has links."""
    target = _file_behind(target)
    temporary = _temporary(target)
    try:
        os.link(source.resolve(), temporary)
    except OSError:
        write_atomically(target, source.read_bytes())
        return
    temporary.replace(target)
    temporary.unlink(missing_ok=True)  # where the two were one file already, a rename does nothing
    sync_folder(target.parent)


def remove_leftovers(path: Path) -> None:
    """Remove what writers of `path` left behind when they were killed; only for a file that nobody else writes."""
    path = Path(os.path.realpath(path))
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}")
    for file in path.parent.iterdir() if path.parent.is_dir() else ():
        if pattern.fullmatch(file.name):
            file.unlink(missing_ok=True)


def named_file(path: str | os.PathLike[str]) -> Path:
    """The path that a user gave; a ValueError if it is empty, which `Path` takes for the folder one is in."""
    if not os.fspath(path):
        raise ValueError("`path` is empty: pass the name of a file, e.g. 'net.safetensors'")
    return Path(path)


def _file_behind(path: Path) -> Path:
    """`path`, or what it leads to as a symbolic link; an OSError if that is something else than a file."""
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing there, or not to be seen: writing will tell
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write {path}, which is a folder: choose the name of a file in it")
    if not stat.S_ISREG(mode):
        raise FileExistsError(
            f"cannot write {path}, a device, pipe or socket that a file would take the place of: choose another `path`"
        )
    target = Path(os.path.realpath(path)) if os.path.islink(path) else path
    if os.path.islink(target):
        raise OSError(f"cannot write {path}, a link that leads back to itself: remove it, or choose another `path`")
    return target


def _temporary(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(8)}"


def sync_folder(folder: Path) -> None:
    """Let renames in `folder` survive a power cut, where the system allows to open a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able facts to `path`, atomically, with a checksum over both.

    Args:
        path: file to write, usually `*.safetensors`.
        tensors: by name; copied to the CPU, never shared.
        facts: anything `json.dumps` takes.
    """
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(facts, allow_nan=True)
    metadata = {
        "bayeslim_version": str(FORMAT_VERSION),
        "bayeslim_facts": text,
        "bayeslim_sha256": _digest(plain, text),
    }
    write_atomically(path, serialise(plain, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote.

    Raises:
        FileNotFoundError: if there is no such file.
        DamagedFile: if it is damaged.
        ValueError: if it is not such a file, or was written by a newer version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    # Read at once: mapped tensors would change whenever another process writes to the file.
    content = path.read_bytes()
    try:
        tensors = deserialise(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (SafetensorError, AssertionError, KeyError, ValueError, OverflowError, RuntimeError) as error:
        raise DamagedFile(
            f"{path} is not a readable safetensors file ({error}): it may be cut short or damaged; "
            "restore it from a copy"
        ) from error
    metadata = header.get("__metadata__") or {}
    missing = {"bayeslim_version", "bayeslim_facts", "bayeslim_sha256"} - metadata.keys()
    if missing:
        raise ValueError(f"{path} was not written by bayeslim: it lacks {', '.join(sorted(missing))}")
    version = metadata["bayeslim_version"]
    if not version.isdecimal() or not 1 <= int(version) <= FORMAT_VERSION:
        raise ValueError(f"{path} has format version {version}, this bayeslim reads up to {FORMAT_VERSION}: upgrade")
    if _digest(tensors, metadata["bayeslim_facts"]) != metadata["bayeslim_sha256"]:
        raise DamagedFile(f"{path} is damaged: its checksum does not match; restore it from a copy")
    return tensors, read_json(metadata["bayeslim_facts"], path)


def json_text(facts: Mapping[str, Any], indent: int | None = None) -> str:
    """Facts as JSON for any reader: a number that is not finite becomes null.

    Args:
        facts: what JSON can hold, and such numbers.
        indent: spaces per level; None writes one line.

    Example:
        >>> json_text({"nll": math.inf})
        '{"nll": null}'
    """
    return json.dumps(_finite(facts), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(text: str | bytes, path: Path) -> dict[str, Any]:
    """The JSON object `text`, which stands in the file `path`; a ValueError names the file if it is something else."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no valid JSON ({error}): restore it from a copy") from error
    if not isinstance(facts, dict):
        raise ValueError(f"{path} holds {type(facts).__name__} where facts belong: restore it from a copy")
    return facts


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
