"""What the documentation of the first edition shows can still be imported, and is of the same kind."""

import subprocess
import sys

from frozen.import_paths import kind_of, resolved, stored


def problem(path: str, kind: str) -> str | None:
    try:
        found = kind_of(resolved(path))
    except (ImportError, AttributeError) as error:
        return f"{path}: {error}"
    return None if found == kind else f"{path} was a {kind}, is a {found}"


def test_every_path_leads_to_the_same_kind() -> None:
    paths = stored()
    assert len(paths) >= 478 and list(paths) == sorted(paths)
    assert not [found for path, kind in paths.items() if (found := problem(path, kind))]


def test_what_is_reached_from_the_package_needs_no_other_import() -> None:
    names = {path.partition(":")[2].partition(".")[0] for path in stored() if path.startswith("bayeslim:")}
    code = "import bayeslim; print(*dir(bayeslim))"
    offered = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not names - set(offered)
