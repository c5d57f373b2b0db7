"""The pictures of the gallery: runs the examples of its page and keeps what they draw.

Run it from the repository's root: python docs/assets/gallery/make_gallery.py. The picture of the report is taken by a
browser (playwright, and Chromium on the path or in PRERANK_CHROMIUM); without one the old picture stays.
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "gallery.md"


def examples(text: str) -> list[str]:
    """The Python blocks of a page, in their order."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def pictures(text: str) -> list[str]:
    """The names of the pictures that a page shows."""
    return re.findall(r"\(assets/gallery/([\w-]+\.png)\)", text)


def run(blocks: list[str], folder: Path) -> None:
    """Run blocks one after the other in a folder, which they draw into."""
    names: dict[str, object] = {"__name__": "example"}
    with contextlib.chdir(folder):
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)


def photograph(report: Path, picture: Path) -> bool:
    """A picture of the head of a report, if there is a browser."""
    browser = os.environ.get("PRERANK_CHROMIUM") or shutil.which("chromium")
    if browser is None:
        return False
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return False
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1200, "height": 1480})
        page.goto(report.as_uri())
        page.screenshot(path=picture)
        chromium.close()
    return True


def keep(source: Path, picture: Path) -> None:
    """A palette is plenty for bars and lines, and a third of the bytes; rare colours, such as a swatch, must stay theirs."""
    image = Image.open(source).convert("RGB")
    image.quantize(255, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(picture, optimize=True)
    print(f"{picture.name}: {picture.stat().st_size // 1024} KB")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(examples(text), folder)
        photograph(folder / "report.html", folder / "report.png")
        for name in pictures(text):
            if (folder / name).exists():
                keep(folder / name, HERE / name)
            elif not (HERE / name).exists():
                raise SystemExit(f"{name} was drawn by no example; is there a browser for the report?")


if __name__ == "__main__":
    main()
