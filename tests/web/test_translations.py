"""Both languages are whole: every message is translated, and what is shipped is what the texts say.

To bring the catalogue up to date:
    pybabel extract -F babel.cfg -k N_ --no-location -o berth.pot .
    pybabel update -D berth -l zh_Hans_CN -i berth.pot -d webapp/translations --no-fuzzy-matching
    (translate what is empty), then
    pybabel compile -D berth -d webapp/translations
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "webapp" / "translations" / "zh_Hans_CN" / "LC_MESSAGES"
SAME_IN_BOTH = {"Berth", "CPU", "Dockerfile", "GPU", "GPUs", "PCI", "uid", "uid %(uid)d", "SSH, Jupyter"}


@pytest.fixture(scope="module")
def extracted() -> Catalog:
    catalog = Catalog()
    with (ROOT / "babel.cfg").open() as config:
        methods, options = parse_mapping_cfg(config)
    for folder in ("webapp", "templates"):
        prefix = f"{folder}/"
        here = [(pattern.removeprefix(prefix), method) for pattern, method in methods if pattern.startswith(prefix)]
        how = {pattern.removeprefix(prefix): value for pattern, value in options.items()}
        found = extract_from_dir(ROOT / folder, here, how, {**DEFAULT_KEYWORDS, "N_": None})
        for file, line, message, _comments, _context in found:
            catalog.add(message, locations=[(f"{folder}/{file}", line)])
    return catalog


@pytest.fixture(scope="module")
def chinese() -> Catalog:
    with (FOLDER / "berth.po").open("rb") as file:
        return read_po(file, locale="zh_Hans_CN", domain="berth")


def messages(catalog: Catalog) -> dict[str, str]:
    """English (singular) → translation."""
    return {_first(message.id): _first(message.string) for message in catalog if message.id}


def test_every_message_is_translated(extracted: Catalog, chinese: Catalog) -> None:
    wanted, there = messages(extracted), messages(chinese)
    assert len(wanted) > 400
    assert sorted(text for text in wanted if not there.get(text)) == []


def test_no_translation_is_left_over_or_guessed(extracted: Catalog, chinese: Catalog) -> None:
    assert sorted(messages(chinese).keys() - messages(extracted).keys()) == []
    assert not chinese.obsolete and not [message.id for message in chinese if message.id and message.fuzzy]


def test_places_for_facts_are_the_same(chinese: Catalog) -> None:
    odd = [english for english, translated in messages(chinese).items()
           if sorted(set(_places(english))) != sorted(set(_places(translated)))]
    assert odd == []


def test_translations_are_chinese(chinese: Catalog) -> None:
    plain = [english for english, translated in messages(chinese).items()
             if not re.search("[\u4e00-\u9fff]", translated) and english not in SAME_IN_BOTH]
    assert [text for text in plain if re.search("[a-zA-Z]{3}", re.sub(r"%\(\w+\)\S*", "", text))] == []


def test_shipped_catalogue_says_what_its_text_says(chinese: Catalog) -> None:
    with (FOLDER / "berth.mo").open("rb") as file:
        assert messages(read_mo(file)) == messages(chinese)


def _first(text: object) -> str:
    return str(text[0]) if isinstance(text, tuple | list) else str(text)


def _places(text: str) -> list[str]:
    return re.findall(r"%\(\w+\)[\d.]*[sdf]", text)
