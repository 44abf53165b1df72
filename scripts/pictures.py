#!/usr/bin/env python3
"""Draws docs/pictures/NAME.svg from NAME.txt; --check instead names pictures that differ from it.

Each line of a text describes one element, in pixels from the upper left:

    size WIDTH HEIGHT TITLE
    group NAME X Y WIDTH HEIGHT TEXT       a frame, its text in the upper left corner
    KIND NAME X Y WIDTH HEIGHT TEXT        box, copy, pool, own or no: a box in that colour
    arrow FROM TO [TEXT]                   dash: the same, dashed; line: without a head
    text X Y TEXT                          right and middle: X is the text's end or middle

FROM and TO are X,Y or NAME:SIDE[PERCENT], with n, e, s or w for the side: box:e or box:s25. In a
TEXT, | begins a new line, and a line that begins with ` is code. A text wider than its box is an
error. The background is light, whatever the page's background.
"""
import html
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "pictures"
LINE_HEIGHT = 16
FILLS = {  # and edges
    "group": ("none", "#8a94a6"), "box": ("#ffffff", "#5b6575"), "no": ("#eef0f3", "#b4bcc8"),
    "copy": ("#fde7c7", "#a86a12"), "pool": ("#dcebfb", "#2f6fb0"), "own": ("#ddf1de", "#3a7d44")}


def width_of(text):
    """An upper bound of the text's width in usual fonts, at the sizes of write()."""
    if text.startswith("`"):
        return 7.3 * (len(text) - 1)
    return sum(3.9 if c in "iljtf.,:;'|!() " else 10.5 if c in "mwMW" else 7.1 for c in text)


def write(x, y, text, anchor="start", look=""):
    code = text.startswith("`")
    look += "c" if code else ""
    return (f'<text x="{x:g}" y="{y:g}" class="{look}" text-anchor="{anchor}">'
            f"{html.escape(text[code:], quote=False)}</text>").replace(' class=""', "")


class Picture:
    def __init__(self):
        self.boxes, self.parts = {}, []

    def point(self, word):
        if ":" not in word:
            x, y = word.split(",")
            return float(x), float(y), ""
        name, side = word.split(":")
        x, y, width, height = self.boxes[name]
        part = int(side[1:] or 50) / 100
        across = {"n": (x + width * part, y), "s": (x + width * part, y + height),
                  "w": (x, y + height * part), "e": (x + width, y + height * part)}
        return *across[side[0]], side[0]

    def box(self, kind, name, x, y, width, height, text):
        self.boxes[name] = x, y, width, height
        fill, stroke = FILLS[kind]
        dashes = ' stroke-dasharray="5 4"' if kind == "group" else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
                          f'fill="{fill}" stroke="{stroke}"{dashes}/>')
        lines = text.split("|") if text else []
        above = LINE_HEIGHT * (len(lines) - 1) / 2
        top = y + 18 if kind == "group" else y + height / 2 - above + 4.5
        for number, line in enumerate(lines):
            if width_of(line) > width - 6:
                raise ValueError(f"wider than its box: {line}")
            at = (x + 10, "start") if kind == "group" else (x + width / 2, "middle")
            self.parts.append(write(at[0], top + LINE_HEIGHT * number, line, at[1],
                                    "over " if kind == "group" else ""))

    def arrow(self, kind, start, end, text):
        x1, y1, side1 = self.point(start)
        x2, y2, side2 = self.point(end)
        path, middle = f"M{x1:g} {y1:g}", ((x1 + x2) / 2, (y1 + y2) / 2)
        if x1 != x2 and y1 != y2 and side1:
            if side1 in "ns" and side2 in "ns":
                path += f"V{middle[1]:g}H{x2:g}"
            elif side1 in "ew" and side2 in "ew":
                path += f"H{middle[0]:g}V{y2:g}"
            else:
                path += f"V{y2:g}" if side1 in "ns" else f"H{x2:g}"
        path += f"L{x2:g} {y2:g}"
        look = ' stroke-dasharray="5 4"' if kind == "dash" else ""
        head = "" if kind == "line" else ' marker-end="url(#head)"'
        self.parts.append(f'<path d="{path}" class="a"{look}{head}/>')
        if text:
            upright = x1 == x2
            self.parts.append(write(middle[0] + (8 if upright else 0),
                                    middle[1] + (5 if upright else -5), text,
                                    "start" if upright else "middle", "over "))

    def add(self, line):
        kind, rest = line.split(None, 1)
        if kind == "size":
            width, height, self.title = rest.split(None, 2)
            self.width, self.height = int(width), int(height)
        elif kind in FILLS:
            name, x, y, width, height, *text = rest.split(None, 5)
            self.box(kind, name, *map(float, (x, y, width, height)), text[0] if text else "")
        elif kind in ("arrow", "dash", "line"):
            start, end, *text = rest.split(None, 2)
            self.arrow(kind, start, end, text[0] if text else "")
        else:
            anchor = {"text": "start", "right": "end", "middle": "middle"}[kind]
            x, y, text = rest.split(None, 2)
            for number, part in enumerate(text.split("|")):
                self.parts.append(write(float(x), float(y) + LINE_HEIGHT * number, part, anchor))

    def svg(self):
        title = html.escape(self.title)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#3b4453"/></marker>'
            "<style>text{font:13px sans-serif;fill:#1c2430}.c{font:12px monospace}"
            ".over{paint-order:stroke;stroke:#f8f9fb;stroke-width:4px}"
            ".a{fill:none;stroke:#3b4453;stroke-width:1.3}</style></defs>",
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#f8f9fb"/>',
            *self.parts, "</svg>", ""])


def main():
    bad = 0
    for source in sorted(FOLDER.glob("*.txt")):
        picture = Picture()
        for number, line in enumerate(source.read_text().splitlines(), 1):
            try:
                if line.strip() and not line.startswith("#"):
                    picture.add(line)
            except (ValueError, KeyError) as error:
                sys.exit(f"{source.name}:{number}: {error}")
        drawn = source.with_suffix(".svg")
        if "--check" not in sys.argv:
            drawn.write_text(picture.svg())
        elif not drawn.exists() or drawn.read_text() != picture.svg():
            print(f"docs/pictures/{drawn.name} does not match {source.name} (make pictures)")
            bad = 1
    return bad


sys.exit(main())
