"""Cases that one test goes through in a loop: for the many small ones that no report needs to count."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test once per case, with arguments written as for `pytest.mark.parametrize`.

    A failure ends the loop and names its case. Fixtures are made once and a skipped case would skip the rest:
    tests that change their fixtures or skip some cases want `parametrize`.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    known = [dict(zip(keys, case if len(keys) > 1 else (case,), strict=True)) for case in cases]
    assert known, f"no cases for {', '.join(keys)}"

    def looped(test: Test) -> Test:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            for case in known:
                try:
                    test(**given, **case)
                except BaseException as error:  # pytest's own `Failed` is no Exception
                    error.add_note(f"in the case {case}")
                    raise

        parameters = inspect.signature(test).parameters
        assert set(keys) <= set(parameters), f"{test.__name__} does not take {keys}"
        others = [parameter for name, parameter in parameters.items() if name not in keys]
        run.__dict__["__signature__"] = inspect.Signature(others)
        return run

    return looped
