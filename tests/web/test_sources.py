"""The page's own checks: its types, its message catalogues, its pure parts."""

from __future__ import annotations

import pytest

from tests.web import schemas
from tests.web.node import WEB, node


@pytest.mark.slow
def test_the_page_passes_the_type_check() -> None:
    node("node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings")


@pytest.mark.slow
def test_the_unit_tests_of_pure_modules_pass() -> None:
    node("--test", *(str(file) for file in sorted((WEB / "tests").glob("*.test.ts"))))


def test_the_lock_file_names_no_registry_host() -> None:
    assert "resolved" not in (WEB / "package-lock.json").read_text()


def test_the_types_of_documents_are_those_of_the_openapi_document() -> None:
    assert schemas.FILE.read_text() == schemas.schemas(), "see the docstring of tests/web/schemas"
