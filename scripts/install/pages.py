"""The documents to install: the pages, all files that they link to, and the examples.

They keep their paths in the tree, below share/doc/bedplate, so that each relative link of a page
leads to the installed file.
"""

import glob
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGES = ("*.md", "docs/*.md")
EXAMPLES = ("apps/*.toml", "apps/examples/**/*")
LINK = re.compile(r"\]\(([^)\s#]+)")


def matching(patterns):
    return {path for pattern in patterns
            for path in glob.glob(pattern, root_dir=ROOT, recursive=True)
            if os.path.isfile(os.path.join(ROOT, path))}


def linked_from(page):
    """The files of the tree that the page links to."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        targets = LINK.findall(file.read())
    paths = (os.path.normpath(os.path.join(os.path.dirname(page), target)) for target in targets)
    return {path for path in paths if os.path.isfile(os.path.join(ROOT, path))}


def installed():
    """The paths of all documents in the tree, sorted."""
    pages = matching(PAGES)
    return sorted(pages.union(matching(EXAMPLES), *map(linked_from, pages)))
