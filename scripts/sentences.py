#!/usr/bin/python3
"""Says so if too many sentences of comments and documents hide their subject.

    scripts/sentences.py [list [PREFIX...]]

Such a sentence begins with What, Of, Where or the like: a clause is its subject, or its order is
turned round. "Whether" is fine before a bool. LIMIT only falls: lower it when the tree has fewer.
`list` lists them, those in files whose path begins with a PREFIX.
"""

import pathlib
import re
import sys

LIMIT = 151
TOP = ("apps", "transport", "alloc", "pinned_pool", "platform", "tests", "scripts", "docs")
C_FAMILY = (".h", ".cc", ".c")
ENDINGS = {*C_FAMILY, ".py", ".sh", ".mk", ".md"}
HIDES_SUBJECT = re.compile(r"\W*(What|Whatever|Whether|Who|Whoever|Whom|Whose|Where|Of|That which)\b")
BOOL = re.compile(r"\bbool\b|\b(is|has|can|may)_")


def paragraphs_of_comments(lines, mark):
    """Pairs: the text of a paragraph of comment, and the line of code behind it."""
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
    lists = sys.argv[1:2] == ["list"]
    prefixes = tuple(sys.argv[2:]) if lists and sys.argv[2:] else ("",)
    root = pathlib.Path(".")
    paths = sorted(path for path in [*root.glob("*"), *(path for top in TOP
                                                        for path in root.glob(f"{top}/**/*"))]
                   if path.suffix in ENDINGS and str(path).startswith(prefixes))
    found = [sentence for path in paths for sentence in bad_sentences(path)]
    if lists:
        print(*found, f"{len(found)} sentences", sep="\n")
    elif len(found) > LIMIT:
        print(f"{len(found)} sentences hide their subject; at most {LIMIT} may: "
              "scripts/sentences.py list")


if __name__ == "__main__":
    main()
