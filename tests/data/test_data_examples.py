"""The examples in the docstrings say what the code does."""

import doctest
import importlib
import pkgutil

import bayeslim.data
from contracts.cases import each

MODULES = [module.name for module in pkgutil.iter_modules(bayeslim.data.__path__)]


@each("name", MODULES)
def test_docstring_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"bayeslim.data.{name}"))
    assert result.failed == 0


def test_public_names_exist() -> None:
    assert len(set(bayeslim.data.__all__)) == len(bayeslim.data.__all__)
    assert all(hasattr(bayeslim.data, name) for name in bayeslim.data.__all__)
