"""A package to install where no index can be reached."""

from __future__ import annotations

import io
import zipfile


def wheel(name: str) -> tuple[str, bytes]:
    """File name and content of a wheel with one empty module."""
    info = f"{name}-1.0.dist-info"
    files = {f"{name}.py": "", f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return f"{name}-1.0-py3-none-any.whl", buffer.getvalue()
