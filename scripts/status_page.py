#!/usr/bin/python3
"""Makes a header of the status page (apps/http/page): its texts, and the hashes that a browser asks.

    scripts/status_page.py HEADER

{{style}} and {{script}} in page.html become the two other files. Any other {{value}} is written by
apps/http/status_page.cc: the parts of the page are a text, a value's name, a text, and so on.
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
    """As a Content-Security-Policy has it, of all that is between the tags."""
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
