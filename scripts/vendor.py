"""Copy what the pages need from node_modules into static/vendor, with licences and a manifest of hashes.

People who run Berth need no Node: the copies are committed. To update: change the version in package.json, then
    npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
    npm ci --ignore-scripts && python scripts/vendor.py
and look at the pages. A test holds manifest.json, package.json and the files together.
"""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha384
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
MODULES = ROOT / "node_modules"
VENDOR = ROOT / "static" / "vendor"
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True, slots=True)
class Package:
    name: str                       # in the registry
    folder: str                     # below static/vendor
    files: tuple[str, ...]          # inside the package
    licence: str | None = "LICENSE"


PACKAGES = (
    Package("@tabler/core", "tabler", ("dist/css/tabler.min.css",), licence=None),
    Package("@tabler/icons", "icons", ()),
    Package("@fontsource-variable/inter", "inter", ("files/inter-latin-wght-normal.woff2",)),
    Package("@fontsource-variable/jetbrains-mono", "jetbrains-mono", ("files/jetbrains-mono-latin-wght-normal.woff2",)),
)
# Every icon that a page names. `icons.svg` holds these and no others.
ICONS = (
    *("adjustments-horizontal", "alert-circle", "alert-triangle", "box", "brand-vscode", "check", "chevron-right"),
    *("circle-check", "circle-dashed", "circle-plus", "circle-x", "clock", "clock-question", "copy", "cpu"),
    *("device-floppy", "download", "flask", "folder", "hammer", "hourglass", "info-circle", "key", "language"),
    *("link", "list-check", "loader-2", "lock", "logout", "minus"),
    *("moon", "notebook", "player-play", "player-stop", "plug-connected-x", "plus", "refresh", "server-2"),
    *("shield-x", "stack-2", "terminal-2", "trash", "user", "user-check", "user-question", "users", "x"),
)


def main() -> None:
    shutil.rmtree(VENDOR, ignore_errors=True)
    entries = [entry for package in PACKAGES for entry in _copy(package)]
    text = json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
    (VENDOR / "manifest.json").write_text(text, encoding="utf-8")
    print(f"{len(entries)} files in {VENDOR.relative_to(ROOT)}")


def _copy(package: Package) -> list[dict[str, str]]:
    source = MODULES / package.name
    about = json.loads((source / "package.json").read_text(encoding="utf-8"))
    target = VENDOR / package.folder
    target.mkdir(parents=True)
    copied = []
    for name in package.files:
        file = target / Path(name).name
        file.write_bytes(_without_map((source / name).read_bytes(), file.suffix))
        copied.append(file)
    if package.folder == "icons":
        copied.append(_sprite(source / "icons" / "outline", target / "icons.svg"))
    licence = target / "LICENSE"
    licence.write_text(_licence(package, source), encoding="utf-8")
    return [
        {
            "file": str(file.relative_to(VENDOR)),
            "package": package.name,
            "version": about["version"],
            "licence": about["license"],
            "sha384": b64encode(sha384(file.read_bytes()).digest()).decode(),
        }
        for file in (*copied, licence)
    ]


def _without_map(content: bytes, suffix: str) -> bytes:
    """A source map that is not shipped would be asked for by every developer console."""
    if suffix not in (".css", ".js"):
        return content
    return re.sub(rb"\n?/[*/]# sourceMappingURL=[^\n]*\n?", b"\n", content)


def _sprite(folder: Path, target: Path) -> Path:
    ElementTree.register_namespace("", SVG.strip("{}"))
    sprite = ElementTree.Element(f"{SVG}svg")
    for name in ICONS:
        icon = ElementTree.parse(folder / f"{name}.svg").getroot()  # noqa: S314
        symbol = ElementTree.SubElement(sprite, f"{SVG}symbol", {"id": name, "viewBox": "0 0 24 24"})
        for shape in icon:
            if shape.get("stroke") != "none":   # the empty box that every icon begins with
                shape.tail = None
                symbol.append(shape)
    target.write_bytes(ElementTree.tostring(sprite) + b"\n")
    return target


def _licence(package: Package, source: Path) -> str:
    if package.licence:
        return (source / package.licence).read_text(encoding="utf-8")
    # @tabler/core ships no licence file; its stylesheet names MIT and the holders, its sister package has the text.
    banner = (source / package.files[0]).read_text(encoding="utf-8")[:600]
    holders = "\n".join(re.findall(r"Copyright [^\n]+", banner))
    mit = (MODULES / "@tabler/icons" / "LICENSE").read_text(encoding="utf-8")
    return re.sub(r"Copyright [^\n]+", lambda _: holders, mit, count=1)


if __name__ == "__main__":
    main()
