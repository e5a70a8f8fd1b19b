"""The dashboard as a browser without scripts uses it: forms with their CSRF tokens, cookies, redirects."""

from __future__ import annotations

import re

import requests
from faults.house import PASSWORD, House, Person

_CSRF = re.compile(r'name="csrf_token"[^>]*value="([^"]+)"')


class Browser:
    def __init__(self, house: House) -> None:
        self._url = house.settings.url
        self._session = requests.Session()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def sign_in(self, person: Person) -> None:
        answer = self.submit("/sign-in", on="/sign-in", username=person.username, password=PASSWORD)
        assert "sign-in" not in answer.url, answer.text[:2000]

    def get(self, path: str) -> requests.Response:
        answer = self._session.get(self._url + path, timeout=30)
        answer.raise_for_status()
        return answer

    def submit(self, path: str, *, on: str, **fields: str) -> requests.Response:
        """A form of the page `on`."""
        found = _CSRF.search(self.get(on).text)
        assert found is not None, f"{on} has no form"
        form = {"csrf_token": found[1], **fields}
        answer = self._session.post(self._url + path, data=form, headers={"Origin": self._url}, timeout=30)
        answer.raise_for_status()
        return answer
