"""The program that looks at the cards from inside a workspace: one line of JSON, read by domain/gpu_check.py.

It is handed over as text, so it imports nothing of Berth. A small product on each card is compared with the CPU's.
"""

from __future__ import annotations

import json
from typing import Any

MARK = "BERTH-CHECK "
SIDE = 256          # of the square matrices: 1 MB in all


def look() -> dict[str, Any]:
    try:
        import torch  # type: ignore[import-not-found]  # noqa: PLC0415
    except Exception as error:
        return {"torch": None, "failure": f"{type(error).__name__}: {error}"}
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    found["available"] = torch.cuda.is_available()
    if not found["available"]:
        return found
    found["count"] = torch.cuda.device_count()
    torch.manual_seed(7)
    one, other = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    product = one @ other
    found["cards"] = [_card(torch, number, one, other, product) for number in range(found["count"])]
    return found


def _card(torch: Any, number: int, one: Any, other: Any, product: Any) -> dict[str, Any]:
    try:
        device = torch.device("cuda", number)
        there = (one.to(device) @ other.to(device)).cpu()
        difference = ((there - product).abs().max() / product.abs().max()).item()
        return {"name": torch.cuda.get_device_name(number), "difference": difference}
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    print(MARK + json.dumps(look()), flush=True)
