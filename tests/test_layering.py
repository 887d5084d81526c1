"""The package is a house of floors: a part imports from lower floors, or from its own without a cycle.

The papers stand on top of it.
"""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "bayeslim"
FLOORS = {
    "for all": "checks runtime",
    "kernels": "kernels",
    "axes": "divergence estimators full_covariance gaussian layers likelihoods log_alpha masks metrics moment_methods "
    "moment_rules ops posteriors priors select using",
    "networks": "architecture collapse conversion_report convert converters data kl methods models moped parts saving "
    "schedules selectors storage surgery",
    "work": "analysis baselines export feature_selection machine optim predictive pruning step_costs training",
    "app": "__main__ cli named_models report runs sklearn train_config",
}
"""Each floor's parts, lowest floor first."""
FLOOR = {part: number for number, parts in enumerate(FLOORS.values()) for part in parts.split()}
FLOOR["__init__"] = FLOOR["cli"]  # gathers the public names, which load on demand
OPTIONAL = {
    *("PIL", "accelerate", "captum", "jinja2", "laplace", "matplotlib", "onnx", "onnxruntime", "onnxscript", "pandas"),
    *("peft", "plotly", "pyarrow", "pyro", "scipy", "sklearn", "tomli_w", "torchvision", "transformers", "tyro"),
}
FILES = sorted(PACKAGE.rglob("*.py"))
PAPERS = sorted(PACKAGE.with_name("bayeslim_papers").rglob("*.py"))


def name_of(file: Path) -> str:
    return str(file.relative_to(PACKAGE.parent))


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


def imports_of_parts() -> dict[str, dict[str, str]]:
    """For each part the others that it imports, with a module that does."""
    found: dict[str, dict[str, str]] = {part_of(file): {} for file in FILES}
    for file in FILES:
        for name in imported_names(file):
            package, _, rest = name.partition(".")
            other = rest.split(".")[0]
            if package == "bayeslim" and other != part_of(file):
                found[part_of(file)][other if other in found else "__init__"] = name_of(file)
    return found


def test_parts_import_from_lower_floors_or_from_their_own() -> None:
    graph = imports_of_parts()
    assert sorted(FLOOR) == sorted(graph), "FLOORS names the parts as they are"
    wrong = [
        f"{module} imports {other}: {part} may not"
        for part, others in graph.items()
        for other, module in others.items()
        if FLOOR[other] > FLOOR[part]
    ]
    assert not wrong


def test_no_cycle_among_the_parts() -> None:
    TopologicalSorter(imports_of_parts()).prepare()  # the error names the cycle


def test_the_package_knows_the_papers_by_one_command_alone() -> None:
    knowing = {str(file.relative_to(PACKAGE)) for file in FILES if "bayeslim_papers" in file.read_text()}
    assert knowing == {"cli/reproduce.py"}
    assert not any("bayeslim_papers" in name for name in imported_names(PACKAGE / "cli" / "reproduce.py"))


def test_no_optional_package_at_import() -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    for file in [*FILES, *PAPERS]:
        names = [name.split(".") for name in imported_names(file)]
        inside = file.parent == PACKAGE / "sklearn"
        needed = {name[0] for name in names} & (OPTIONAL - ({"sklearn"} if inside else set()))
        wrong[name_of(file)] += sorted(needed)
        if not inside and any(name[:2] == ["bayeslim", "sklearn"] for name in names):
            wrong[name_of(file)].append("bayeslim.sklearn, which needs scikit-learn")
    assert not {name: needed for name, needed in wrong.items() if needed}


def test_no_module_is_past_its_size() -> None:
    lines = {name_of(file): len(file.read_text().splitlines()) for file in [*FILES, *PAPERS]}
    assert not {name: count for name, count in lines.items() if count > 300}


def test_top_level_names_are_few_and_exist() -> None:
    import bayeslim

    assert len(bayeslim.__all__) <= 40
    assert all(hasattr(bayeslim, name) for name in bayeslim.__all__)
