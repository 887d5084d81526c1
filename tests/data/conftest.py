"""Data tests never use the user's own cache or the network."""

import os
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

_NAMED = os.environ.get("BAYESLIM_DATA")
_BESIDE_REPOSITORY = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no BAYESLIM_DATA, and no connection to another machine."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in ("BAYESLIM_DATA", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    really_open = urllib.request.OpenerDirector.open

    def open_local(self, fullurl, *args, **kwargs):
        host = urlsplit(fullurl.full_url).hostname
        if host != "127.0.0.1":
            raise ConnectionError(f"a test tried to reach {host}")
        return really_open(self, fullurl, *args, **kwargs)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", open_local)
    return cache / "bayeslim"


@pytest.fixture
def real_data() -> Path:
    """The folder with the real sets; a test that asks for it is skipped where there is none."""
    folder = Path(_NAMED) if _NAMED else _BESIDE_REPOSITORY
    if not folder.is_dir():
        pytest.skip("no real data: set BAYESLIM_DATA to the folder that holds mnist/, uci/, ...")
    return folder
