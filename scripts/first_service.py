#!/usr/bin/python3
"""Prints the program of one step of docs/first-service.md.

    scripts/first_service.py STEP

The document shows the first step as a whole, and each later one as a patch of the step before it
(diff -U1 -p). The last step is apps/examples/echo.cc.
"""

import os
import re
import subprocess
import sys
import tempfile

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/first-service.md")


def program_of_step(step):
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    (text,) = re.findall(r"^```cpp\n(.*?)^```", page, re.M | re.S)
    patches = re.findall(r"^```diff\n(.*?)^```", page, re.M | re.S)
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "echo.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        for patch in patches[:step - 1]:
            subprocess.run(["patch", "--quiet", "--fuzz=0", path], input=patch, text=True,
                           check=True)
        with open(path, encoding="utf-8") as file:
            return file.read()


if __name__ == "__main__":
    sys.stdout.write(program_of_step(int(sys.argv[1])))
