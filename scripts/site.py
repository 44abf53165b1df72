#!/usr/bin/python3
"""Builds docs/ into build/docs/site with mkdocs, and checks every link of the site.

    scripts/site.py [FOLDER]

FOLDER replaces build/docs. The pages are docs/*.md, with index.md first, and the documents of the
root except README.md, whose text index.md contains. A source file that a page links to is copied
unchanged. Errors are mkdocs' warnings, a link to a missing page or heading, a page that is not
listed in docs/mkdocs.yml, and a picture, script or style that a page fetches from another site.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\(\s*)([^)\s]+)(\))")
# Elements that a browser fetches by itself; a link is followed only by the reader.
FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src"}


def site_path(path):
    """The path of a repository's file within the site."""
    if path.parent == ROOT and path.suffix == ".md":
        return pathlib.Path(path.name)
    if ROOT / "docs" in path.parents:
        return path.relative_to(ROOT / "docs")
    # A browser displays .txt, and downloads file types that it does not know.
    return pathlib.Path("source", f"{path.relative_to(ROOT)}.txt")


def stage(document, pages):
    """Writes a document with its links rewritten for the site; returns the sources it links to."""
    sources = set()

    def moved(link):
        target, hash_mark, heading = link[2].partition("#")
        if not target or "://" in target:
            return link[0]
        path = (document.parent / target).resolve()
        if not path.is_file():
            return link[0]  # mkdocs reports it
        if path.suffix != ".md" and ROOT / "docs" not in path.parents:
            sources.add(path)
        target = os.path.relpath(site_path(path), site_path(document).parent)
        return f"{link[1]}{target}{hash_mark}{heading}{link[3]}"

    fences = re.split(r"(^```.*?^```$)", document.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in fences)
    (pages / site_path(document)).write_text(text, "utf-8")
    return sources


def build(folder):
    """Returns the site, or None if mkdocs failed."""
    pages, site = folder / "pages", folder / "site"
    for made in (pages, site):
        shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.md", "*.txt", "mkdocs.yml", "theme"))
    sources = set()
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        if document == ROOT / "README.md":
            continue
        sources |= stage(document, pages)
    for source in sources:
        (pages / site_path(source)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, pages / site_path(source))
    settings = folder / "mkdocs.yml"
    settings.write_text((ROOT / "docs/mkdocs.yml").read_text() +
                        f"docs_dir: {pages}\nsite_dir: {site}\n"
                        f"theme:\n  name: null\n  custom_dir: {ROOT}/docs/theme\n")
    done = subprocess.run(["mkdocs", "build", "--strict", "-f", settings], check=False)
    return site if done.returncode == 0 else None


class Page(html.parser.HTMLParser):
    """A page: its link targets, the files that it fetches, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links, self.fetched, self.names = set(), set(), set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.update(attributes.get(name) for name in ("id", "name"))
        if tag == "a" and attributes.get("href"):
            self.links.add(attributes["href"])
        if FETCHED.get(tag) in attributes and attributes.get("rel") != "canonical":
            self.fetched.add(attributes[FETCHED[tag]])


def broken(site):
    """A line for each broken link, and for each file that is fetched from another site."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    lines = []
    for path, page in pages.items():
        for link in sorted(page.links | page.fetched):
            parts = urllib.parse.urlsplit(link)
            here = f"{path.relative_to(site)}: {link}"
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    lines.append(f"{here}: fetched from elsewhere")
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                lines.append(f"{here}: there is no such file")
            elif parts.fragment and target in pages and \
                    urllib.parse.unquote(parts.fragment) not in pages[target].names:
                lines.append(f"{here}: there is no such heading")
    return lines


def unlisted():
    """Pages of docs/ that no menu lists."""
    menu = (ROOT / "docs/mkdocs.yml").read_text()
    return [f"docs/mkdocs.yml: nav has no {path.name}"
            for path in sorted((ROOT / "docs").glob("*.md")) if f": {path.name}\n" not in menu]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/docs").resolve()
    site = build(folder)
    lines = unlisted() + (broken(site) if site else ["mkdocs has not built the site"])
    for line in lines:
        print(f"failed: {line}")
    if not lines:
        print(f"{site}/index.html: {len(list(site.rglob('*.html')))} pages")
    print(f"{0 if lines else 1} passed, {len(lines)} failed, 0 skipped")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
