#!/usr/bin/python3
"""Prints compile_commands.json, from the commands that `make -Bn V=1` prints."""

import json
import os
import shlex
import sys

commands = []
for line in sys.stdin:
    words = shlex.split(line) if " -c " in line else []
    sources = [word for word in words if word.endswith((".cc", ".c"))]
    if len(sources) == 1:
        commands.append({"directory": os.getcwd(), "file": sources[0], "arguments": words})
json.dump(commands, sys.stdout, indent=1)
