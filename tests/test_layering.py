"""The package is a stack: a module imports only what stands above it in this list; the papers stand on top of it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "bayeslim"
ORDER = [
    "checks",
    "train_config",
    "runtime",
    "kernels",
    "moment_methods",
    "gaussian",
    "select",
    "machine",
    "ops",
    "log_alpha",
    "posteriors",
    "masks",
    "priors",
    "divergence",
    "estimators",
    "moment_rules",
    "layers",
    "using",
    "kl",
    "selectors",
    "surgery",
    "converters",
    "conversion_report",
    "convert",
    "collapse",
    "moped",
    "models",
    "methods",
    "full_covariance",
    "metrics",
    "likelihoods",
    "schedules",
    "storage",
    "architecture",
    "parts",
    "saving",
    "optim",
    "predictive",
    "pruning",
    "training",
    "step_costs",
    "baselines",
    "export",
    "analysis",
    "data",
    "named_models",
    "runs",
    "report",
    "feature_selection",
    "cli",
    "__main__",
    "sklearn",
]
OPTIONAL = {
    "tyro",
    "tomli_w",
    "sklearn",
    "matplotlib",
    "plotly",
    "jinja2",
    "onnx",
    "onnxruntime",
    "captum",
    "pyro",
    "laplace",
    "scipy",
    "pyarrow",
    "PIL",
}
FILES = sorted(PACKAGE.rglob("*.py"))
PAPERS = sorted(PACKAGE.with_name("bayeslim_papers").rglob("*.py"))


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(file: Path) -> list[str]:
    """Absolute names imported when the module is loaded (imports inside functions are lazy)."""
    names: list[str] = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: write imports in full"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_upwards(file: Path) -> None:
    part = part_of(file)
    names = [name.split(".") for name in imported_names(file)]
    ours = {name[1] for name in names if name[0] == "bayeslim" and len(name) > 1}
    if part == "__init__":
        assert not ours & {"sklearn"}
        return
    assert part in ORDER, f"{part} has no place in the stack: add it to ORDER"
    below = {other for other in ours - {part} if ORDER.index(other) > ORDER.index(part)}
    assert not below, f"{part} may not import {sorted(below)}"


def test_the_package_knows_the_papers_by_one_command_alone() -> None:
    knowing = {str(file.relative_to(PACKAGE)) for file in FILES if "bayeslim_papers" in file.read_text()}
    assert knowing == {"cli/reproduce.py"}
    assert not any("bayeslim_papers" in name for name in imported_names(PACKAGE / "cli" / "reproduce.py"))


@pytest.mark.parametrize("file", [*FILES, *PAPERS], ids=lambda file: str(file.relative_to(PACKAGE.parent)))
def test_no_optional_package_at_import(file: Path) -> None:
    allowed = {"sklearn"} if file.parent == PACKAGE / "sklearn" else set()
    assert not {name.split(".")[0] for name in imported_names(file)} & (OPTIONAL - allowed)


def test_no_module_is_past_its_size() -> None:
    lines = {str(file.relative_to(PACKAGE.parent)): len(file.read_text().splitlines()) for file in [*FILES, *PAPERS]}
    assert not {name: count for name, count in lines.items() if count > 300}


def test_top_level_names_are_few_and_exist() -> None:
    import bayeslim

    assert len(bayeslim.__all__) <= 40
    assert all(hasattr(bayeslim, name) for name in bayeslim.__all__)
