"""A tiny operator for the tests of the lab: it copies each ConfigMap `order` into Secrets, right or wrong.

`careful` gives the Secret a name, so that it never makes it twice. `careless` has its name generated, and
remembers in an annotation that it has made it: a crash between the two writes leaves a second Secret behind.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

CONFIG = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))
CLUSTER, TOKEN = CONFIG["clusters"][0]["cluster"], CONFIG["users"][0]["user"]["token"]
NAMESPACE = CONFIG["contexts"][0]["context"]["namespace"]


def call(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """Send one request; None if it is refused."""
    import base64  # noqa: PLC0415 - one use

    context = ssl.create_default_context(
        cadata=base64.b64decode(CLUSTER["certificate-authority-data"]).decode()
    )
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(  # noqa: S310 - its own server
        f"{CLUSTER['server']}/api/v1/namespaces/{NAMESPACE}/{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:  # noqa: S310
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError:
        return None


def main() -> None:
    """Work until killed."""
    careful = sys.argv[1] == "careful"
    while True:
        order = call("GET", "configmaps/order")
        if order is not None and "done" not in order["metadata"].get("annotations", {}):
            meta = {"name": "made"} if careful else {"generateName": "made-"}
            call("POST", "secrets", {"metadata": meta})
            call("PATCH", "configmaps/order", {"metadata": {"annotations": {"done": "yes"}}})
        time.sleep(0.1)


if __name__ == "__main__":
    main()
