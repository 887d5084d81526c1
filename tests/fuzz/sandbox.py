"""Where odd command lines are run: a folder that is watched."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any


class Sandbox:
    """A folder with a run and files of all kinds, made anew when something in it has changed."""

    def __init__(self, folder: Path, run: Path) -> None:
        self.folder, self.run, self.elsewhere = folder, run, list[str]()
        self.watching = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event == "open" and isinstance(arguments[0], str):
            name = os.path.abspath(arguments[0])
            writes = bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if writes and not name.startswith((str(self.folder), "/dev/", "/proc/")) and "__pycache__" not in name:
                self.elsewhere.append(name)

    def fill(self) -> dict[str, tuple[int, int]]:
        """Make everything anew; what there is."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.run, self.folder / "run")
        shutil.copytree(self.run, self.folder / "spoilt")
        (self.folder / "spoilt" / "model.safetensors").write_bytes(bytes(range(256)))
        (self.folder / "folder").mkdir()
        (self.folder / "folder" / "mine").write_text("mine")
        shutil.copytree(self.run, self.folder / "[" / "run]")
        for name in ("flowers.csv", "[red].csv", "日本.csv"):
            shutil.copy(self.run.parent / "flowers.csv", self.folder / name)
        (self.folder / "empty.csv").touch()
        for name in ("binary.csv", "binary.npz", "binary.png"):
            (self.folder / name).write_bytes(bytes(range(256)) * 4)
        return self.content()

    def content(self) -> dict[str, tuple[int, int]]:
        """Time and size of every file."""
        found = ((file, file.lstat()) for file in self.folder.rglob("*") if not file.is_dir())
        return {str(file.relative_to(self.folder)): (facts.st_mtime_ns, facts.st_size) for file, facts in found}
