"""The client of ``nervure serve``: where it finds the token."""

from __future__ import annotations

from pathlib import Path

import pytest
from nervure.client import Client


@pytest.mark.parametrize(("domain", "token"), [(None, "first"), ("", "first"), ("red", "second")])
def test_the_token_is_that_of_the_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domain: str | None, token: str
) -> None:
    monkeypatch.setenv("NERVURE_STATE", str(tmp_path))
    monkeypatch.delenv("NERVURE_DOMAIN", raising=False)
    if domain is not None:
        monkeypatch.setenv("NERVURE_DOMAIN", domain)
    (tmp_path / "@red").mkdir()
    for name, text in ((".", "first"), ("@red", "second")):
        (tmp_path / name / "api-token").write_text(text + "\n")
    assert Client()._token == token
