"""Numbers and their texts, from the table that units_test.cc checks: code in other languages must
format them like platform/units.h."""

import os
import re

from harness import expect_true, read_text

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../platform/unit_texts.inc")


def unit_texts(*kinds):
    """A (kind, number, text) for each row of these kinds: bytes, ns, count."""
    rows = [(kind, float(number), text) for kind, number, text in
            re.findall(r'^\{"(\w+)", ([\d.]+), "(.*)"\},$', read_text(TABLE), re.MULTILINE)
            if kind in kinds]
    expect_true(len(rows) > 10, f"rows of {kinds}: {len(rows)}")
    return rows
