#!/usr/bin/python3
"""Prints each dangling reference in documents and comments: a document's link to a file or heading,
a path that begins with a folder of the tree, a file's bare name in backquotes."""
import pathlib
import re

TOP = ("apps", "transport", "alloc", "pinned_pool", "platform", "python", "tests", "scripts",
       "docs")
SOURCES = {".h", ".cc", ".c", ".py", ".sh", ".toml"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w./-])((?:%s)/[\w./*+-]*[\w*+])" % "|".join(TOP))
NAME = re.compile(r"`([a-z]\w*\.(?:h|cc|c|py|sh|toml|md|mk))`")
PLACEHOLDER = re.compile(r"/[A-Z]+(\.\w+)?$")  # docs/FILE
GENERATED = {"apps/http/status_page_parts.h"}  # scripts/status_page.py writes it


def heading_names(text):
    names = set()
    for line in re.findall(r"^#+ (.*)", text, re.M):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line).lower())
        names.add(plain.replace(" ", "-"))
    return names


def is_there(path, files, folders):
    if path.rstrip("/") in folders or path in files or path in GENERATED:
        return True
    if "*" in path:
        return any(pathlib.PurePath(name).match(path) for name in files)
    # A unit may be named without its file extension.
    return any(path + end in files for end in SOURCES | {"_datapath.h", "_datapath.cc"})


def main():
    root = pathlib.Path(".")
    paths = [*root.glob("*"), *(path for top in TOP for path in root.glob(f"{top}/**/*"))]
    files = {str(path) for path in paths if path.is_file()}
    folders = {str(parent) for name in files for parent in pathlib.PurePath(name).parents}
    bare = {pathlib.PurePath(name).name for name in files}
    for name in sorted(files):
        path = pathlib.Path(name)
        if path.suffix not in SOURCES | {".md", ".txt"} and path.name != "Makefile":
            continue
        text = path.read_text(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            missing = []
            if path.suffix == ".md":
                for link in LINK.findall(line):
                    target, _, heading = link.partition("#")
                    at = (path.parent / target).resolve() if target else path.resolve()
                    if "://" in link:
                        continue
                    if not at.exists() or (
                            heading and heading not in heading_names(at.read_text())):
                        missing.append(link)
                missing += [word for word in NAME.findall(line) if word not in bare]
            missing += [word for word in PATH.findall(line)
                        if not is_there(word, files, folders) and not PLACEHOLDER.search(word)]
            for word in missing:
                print(f"{name}:{number}: {word}")


main()
