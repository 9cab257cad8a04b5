"""Verifies the signature of a dispatch.

`lessor-signature: t=<unix seconds>,v1=<lowercase hex HMAC-SHA256(secret, "<t>.<raw body>")>`. Signatures are compared in
constant time, and an old one is worth nothing, so that what was overheard cannot be sent again later.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from typing import Optional, Sequence

HEADER = "lessor-signature"
# How far the coordinator's clock and this one may differ, and how long a dispatch may be under way.
MAX_AGE_S = 300

_FORM = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


def refusal(secrets: Sequence[bytes], header: str, body: bytes, now_s: Optional[float] = None) -> Optional[str]:
    """Why the signature is not good; nothing when it is. While a secret is replaced, both are good."""
    form = _FORM.fullmatch(header)
    if form is None:
        return "the signature is malformed"
    signed = form.group(1).encode() + b"." + body
    is_signed = False
    for secret in secrets:
        expected = hmac.new(secret, signed, hashlib.sha256).hexdigest()
        is_signed |= hmac.compare_digest(expected, form.group(2))
    if not is_signed:
        return "the signature is not made with this secret over this body"
    if abs((time.time() if now_s is None else now_s) - int(form.group(1))) > MAX_AGE_S:
        return "the signature is too old, or of the future"
    return None
