"""The report in a real browser: it draws what it says, and nothing overlaps."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from scripts.ledger import picture
from scripts.ledger.folder import load, starts_in
from scripts.ledger.merge import ledger_of

CASES = Path(__file__).resolve().parents[1] / "cases" / "starts"

LOOK = """
<script>
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg text")].map(e => [e.textContent, e.getBoundingClientRect()]);
  const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  const overlaps = [];
  boxes.forEach(([s, a], i) => boxes.slice(i + 1).forEach(([t, b]) => { if (meets(a, b)) overlaps.push([s, t]); }));
  const svg = document.querySelector("svg").getBoundingClientRect();
  const outside = boxes.filter(([, b]) => b.left < svg.left - 1 || b.right > svg.right + 1).map(([s]) => s);
  document.title = JSON.stringify({overlaps, outside, wide: document.documentElement.scrollWidth > innerWidth,
                                   rows: document.querySelectorAll("table tr").length, texts: boxes.length});
});
</script>
"""


def test_a_browser_draws_every_recorded_start(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    assert browser, "Chromium is not installed: apt-get install chromium"
    page = tmp_path / "start.html"
    page.write_text(
        picture.page([ledger_of(load(folder)) for folder in starts_in(CASES)]).replace("</body>", LOOK + "</body>"),
        encoding="utf-8",
    )
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1040,1400",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=400, check=True
    )
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert title, done.stdout[:500]
    seen = json.loads(title[1].replace("&amp;", "&"))
    assert seen["overlaps"] == []
    assert seen["outside"] == []
    assert not seen["wide"]
    assert seen["rows"] >= 18 * len(starts_in(CASES))
