#!/usr/bin/python3
"""Lists sentences of comments and documents that hide their subject: none may exist.

    scripts/sentences.py [PREFIX...]

Such a sentence begins with What, Of, Where or the like: its subject is a clause, or its word order
is inverted. A comment of a bool may begin with Whether. PREFIX limits it to files whose path begins
with it.
"""

import pathlib
import re
import sys

TOP = ("apps", "transport", "alloc", "pinned_pool", "platform", "python", "tests", "scripts",
       "docs")
C_FAMILY = (".h", ".cc", ".c")
ENDINGS = {*C_FAMILY, ".py", ".sh", ".mk", ".md"}
HIDES_SUBJECT = re.compile(r"\W*(What|Whatever|Whether|Who|Whoever|Whom|Whose|Where|Of|That which)\b")
BOOL = re.compile(r"\bbool\b|\b(is|has|can|may)_")


def paragraphs_of_comments(lines, mark):
    """Pairs: the text of a paragraph of comment, and the line of code after it."""
    whole_line = re.compile(rf"\s*{mark}+(?:\s(.*))?$")
    behind_code = re.compile(rf"\S\s+{mark} ([^\"]*)$")
    words = []
    for line in [*lines, ""]:
        comment = whole_line.match(line)
        if comment and (comment[1] or "").strip():
            words.append(comment[1].strip())
            continue
        if words:
            yield " ".join(words), "" if comment else line
            words = []
        behind = None if comment else behind_code.search(line)
        if behind:
            yield behind[1], line


def paragraphs_of_document(lines):
    words, is_code = [], False
    for line in [*lines, ""]:
        is_fence = line.startswith("```")
        is_code ^= is_fence
        if not (is_code or is_fence or not line.strip() or line.startswith(("|", "#"))):
            words.append(re.sub(r"^\s*([-*]|\d+\.)\s+", "", line.strip()))
            continue
        if words:
            yield " ".join(words), ""
            words = []
        if line.startswith("|") and not is_code:
            for cell in line.split("|"):
                yield cell.strip(), ""


def paragraphs(path):
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix == ".md":
        yield from paragraphs_of_document(lines)
        return
    yield from paragraphs_of_comments(lines, "//" if path.suffix in C_FAMILY else "#")
    if path.suffix == ".py":
        for docstring in re.findall(r'"""(.*?)"""', text, re.DOTALL):
            for paragraph in re.split(r"\n\s*\n", docstring):
                yield " ".join(paragraph.split()), ""


def bad_sentences(path):
    for paragraph, code in paragraphs(path):
        for i, sentence in enumerate(re.split(r"(?<=[.:;?!])\s+", paragraph)):
            found = HIDES_SUBJECT.match(sentence)
            if found and not (found[1] == "Whether" and i == 0 and BOOL.search(code)):
                yield f"{path}: {sentence}"


def main():
    prefixes = tuple(sys.argv[1:]) or ("",)
    root = pathlib.Path(".")
    paths = sorted(path for path in [*root.glob("*"), *(path for top in TOP
                                                        for path in root.glob(f"{top}/**/*"))]
                   if path.suffix in ENDINGS and str(path).startswith(prefixes))
    for path in paths:
        for sentence in bad_sentences(path):
            print(f"{sentence}: this hides its subject; begin with it")


if __name__ == "__main__":
    main()
