"""What is vendored is what the manifest, package.json and its lock say, and every icon named is there."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha384
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ROOT / "static" / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())


def test_files_are_those_of_the_manifest() -> None:
    there = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()}
    assert there == {entry["file"] for entry in MANIFEST} | {"manifest.json"}
    for entry in MANIFEST:
        content = (VENDOR / entry["file"]).read_bytes()
        assert b64encode(sha384(content).digest()).decode() == entry["sha384"], entry["file"]
        assert b"sourceMappingURL" not in content


def test_versions_are_those_of_package_json() -> None:
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    assert {entry["package"]: entry["version"] for entry in MANIFEST} == wanted
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    for package, version in wanted.items():
        assert locked[f"node_modules/{package}"]["version"] == version
    assert not any("resolved" in entry for entry in locked.values())


def test_every_package_has_its_licence() -> None:
    for folder in {entry["file"].split("/")[0] for entry in MANIFEST}:
        assert re.search("MIT|SIL OPEN FONT", (VENDOR / folder / "LICENSE").read_text())


def test_icons_are_those_that_pages_name() -> None:
    there = set(re.findall(r'symbol id="([\w-]+)"', (VENDOR / "icons" / "icons.svg").read_text()))
    sources = [*ROOT.glob("templates/**/*.html"), *ROOT.glob("webapp/web/**/*.py")]
    named = {name for path in sources for call in re.findall(r"(?:icon|State|note)\([^)]*\)", path.read_text())
             for name in re.findall(r'"([a-z0-9-]+)"', call)}
    used = {name for name in there if any(f'"{name}"' in path.read_text() for path in sources)}
    assert used == there, "vendor.py copies icons that no page names"
    assert {name for name in named if name.count("-") and name not in there} <= NOT_ICONS


NOT_ICONS = {"i-s", "i-l", "ink-bad", "ink-ok", "ink-warn", "b-only-s"}
