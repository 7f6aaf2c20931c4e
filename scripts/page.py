"""One HTML file that needs nothing else: its frame and its style."""

from __future__ import annotations

STYLE = """
body { font: 15px/1.5 system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif; color: #1c2530;
       background: #fff; max-width: 980px; margin: 24px auto; padding: 0 12px }
h1 { font-size: 22px; margin: 0 0 4px } h2 { font-size: 16px; margin: 28px 0 6px } p { margin: 4px 0 }
svg { max-width: 100%; height: auto } table { border-collapse: collapse; width: 100% }
td, th { padding: 5px 8px; border-bottom: 1px solid #e1e6ec; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.error { color: #b00020; font-weight: 600 } .warning { color: #9a5b00 } .info { color: #55606e }
"""


def document(title: str, *, heading: str, body: str, style: str = "") -> str:
    """A page around a picture, as one HTML file that needs nothing else.

    Args:
        title: escaped.
        heading: escaped.
        body: HTML.
        style: CSS of this page beside that of all.
    """
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{title}</title><style>{STYLE}{style}</style></head><body>\n"
        f"<h1>{heading}</h1>\n{body}\n</body></html>\n"
    )
