"""One site for all tests of it."""

from __future__ import annotations

import pytest

from amp_lessons.site.build import build


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of a site, built once."""
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder
