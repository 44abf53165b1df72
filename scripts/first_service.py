#!/usr/bin/python3
"""Prints the program of one step of docs/first-service.md.

    scripts/first_service.py STEP

The document shows the first step as a whole, and each later one as a patch of the step before it
(diff -U0), if it changes the program. The last step is apps/examples/echo.cc.
"""

import os
import re
import subprocess
import sys
import tempfile

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/first-service.md")


def blocks(step, language):
    """The texts in `language` that the step shows."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    section = re.search(rf"^## {step}\. .*?(?=^## |\Z)", page, re.M | re.S)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)


def program_of_step(step):
    (text,) = blocks(1, "cpp")
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "echo.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        for patch in [patch for i in range(2, step + 1) for patch in blocks(i, "diff")]:
            subprocess.run(["patch", "--quiet", "--fuzz=0", path], input=patch, text=True,
                           check=True)
        with open(path, encoding="utf-8") as file:
            return file.read()


if __name__ == "__main__":
    sys.stdout.write(program_of_step(int(sys.argv[1])))
