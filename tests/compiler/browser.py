"""A headless Chromium that opens a page and answers with what a script finds there."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, _NAMES)), None)


def probe(page: str, script: str, folder: Path) -> Any:
    """Open a page in a window of 1600 x 1000.

    Parameters
    ----------
    page : str
        An HTML document.
    script : str
        The body of a JavaScript function that runs last and returns what JSON can hold.
    folder : Path
        For the page and the browser's own files.
    """
    assert BROWSER is not None
    code = f"document.body.dataset.probe = JSON.stringify((() => {{{script}}})());"
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    file = folder / "page.html"
    file.write_text(page.replace("</body>", f"<script>{code}</script></body>"), encoding="utf-8")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += ["--window-size=1600,1000", f"--user-data-dir={folder / 'profile'}"]
    shown = subprocess.run(
        [*command, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(folder)},
    ).stdout
    found = re.search(r'data-probe="([^"]*)"', shown)
    assert found, shown[:2000]
    return json.loads(unescape(found.group(1)))
