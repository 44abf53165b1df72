#!/usr/bin/python3
"""Generates a header of the status page (apps/http/page): its texts, and the hashes for browsers.

    scripts/status_page.py HEADER

{{style}} and {{script}} in page.html are replaced by the two other files. apps/http/status_page.cc
writes any other {{value}}: the parts of the page alternate between a text and a value's name.
"""

import base64
import hashlib
import os
import re
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../apps/http/page")


def text_of(name):
    with open(os.path.join(PAGE, name), encoding="utf-8") as file:
        return file.read()


def hash_of(text):
    """The hash for a Content-Security-Policy, of everything between the tags."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main():
    style, script = "\n" + text_of("page.css"), "\n" + text_of("page.js")
    page = text_of("page.html").replace("{{style}}", style).replace("{{script}}", script)
    parts = re.split(r"\{\{(\w+)\}\}", page)
    literals = ",\n    ".join(f'R"page({part})page"' for part in parts)
    with open(sys.argv[1], "w", encoding="utf-8") as header:
        header.write(f'''// Made from apps/http/page by scripts/status_page.py.
#pragma once

#include <string_view>

#define BP_STATUS_PAGE_STYLE "{hash_of(style)}"
#define BP_STATUS_PAGE_SCRIPT "{hash_of(script)}"

namespace bedplate {{

inline constexpr std::string_view kStatusPageParts[] = {{
    {literals}}};

}}  // namespace bedplate
''')


if __name__ == "__main__":
    main()
