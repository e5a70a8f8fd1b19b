"""All sentences that a code of a reason may stand for, in one place to look them up."""

from __future__ import annotations

from collections.abc import Mapping

from webapp.domain import cuda, gpu, gpu_check, images, moving, placement, reasons
from webapp.domain.reasons import Wording

WORDINGS: Mapping[str, Wording] = {
    **reasons.WORDINGS, **gpu.WORDINGS, **cuda.WORDINGS, **placement.WORDINGS, **gpu_check.WORDINGS,
    **images.WORDINGS, **moving.WORDINGS}
