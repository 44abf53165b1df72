"""A program that is a product of its own (tests/system/journal.c): its texts speak of journald, and
of Bedplate only as the runtime."""

import json
import re

from files_test import JOURNAL, Journal, configure
from harness import expect, expect_in, expect_true, read_text, test, to_toml

COMMANDS = ["run", "plan", "check", "keys", "counters", "doctor", "stats", "top", "trace", "ctl",
            "perf"]


def speaks_of_it(text, what):
    """Commands, paths and prefixes are "bedplate" in lower case; the tool for images has its
    name, and so has the runtime's version in the answer to ping."""
    text = text.replace("\\-", "-").replace("bedplate-image", "").replace('"bedplate": TEXT', "")
    found = re.findall(r".*bedplate.*", text)
    expect(found, [], f"lines of {what} that name another program")


@test()
def its_texts_speak_of_it(box):
    version = box.run(JOURNAL, "--version").stdout
    expect_true(re.fullmatch(r"journald 2\.1 \(Bedplate \d+\.\d+\.\d+, build [^)]+\)\n", version),
                version)
    speaks_of_it(box.run(JOURNAL, "--help").stdout, "--help")
    for command in COMMANDS:
        text = box.run(JOURNAL, command, "--help").stdout
        expect_in(f"usage: journald {command}", text, f"{command} --help")
        speaks_of_it(text, f"{command} --help")
    for words in (["keys"], ["counters"], ["ctl", "--list"]):
        speaks_of_it(box.run(JOURNAL, *words).stdout, " ".join(words))
    refused = box.run(JOURNAL, "serve", expect_code=2).stderr
    expect(refused, "journald: reading the command line: unknown command serve; see: journald "
                    "--help\n", "what an unknown command gets")


@test()
def packages_get_its_manual_pages_and_its_unit(box):
    page = box.run(JOURNAL, "--man").stdout
    expect_in('.TH JOURNALD 1 "" "journald 2.1" "User Commands"\n', page, "the manual page")
    expect_in(".SH NAME\njournald \\- a journal in one file\n", page, "its name")
    speaks_of_it(page, "journald(1)")
    keys = box.run(JOURNAL, "keys", "--man").stdout
    expect_in(".TH JOURNALD.TOML 5", keys, "the manual page of the keys")
    expect_in(".SH [journal]\n.TP\n\\fBlisten\\fR (list of addresses; required)\n", keys,
              "the keys of its service")
    speaks_of_it(keys, "journald.toml(5)")
    unit = box.run(JOURNAL, "--unit", "/opt/bin/journald").stdout
    expect_in("\nExecStart=/opt/bin/journald run /etc/journald/%i.toml\n", unit, "the unit")
    speaks_of_it(unit, "the unit")
    box.run(JOURNAL, "--unit", "journald", expect_code=2)


@test()
def its_appliances_speak_of_it(box):
    """Its runtime directory is in its name, its log begins with it, and ctl tells its version."""
    keys = json.loads(box.run(JOURNAL, "keys", "--json").stdout)
    usual = {key["key"]: key["default"] for key in keys}
    expect(usual["appliance.runtime_directory"], '"/run/journald"', "the usual directory")
    configuration = configure(box, box.write("log", "apples"))
    with open(configuration, "a", encoding="utf-8") as file:
        file.write(to_toml({"control": {}}))
    good = box.run(JOURNAL, "check", configuration).stdout
    expect(good, f"journald: {configuration}: good; this machine has what it takes\n",
           "what check says")
    journal = Journal(box, configuration)
    answer = json.loads(box.run(JOURNAL, "ctl", "--directory", box.path("runtime"), "ping").stdout)
    expect((answer["product"], answer["version"]), ("journald", "2.1"), "its name and version")
    expect_true(re.fullmatch(r"\d+\.\d+\.\d+", answer["bedplate"]), "Bedplate's version")
    journal.stop(0)
    lines = read_text(box.path("journal.log")).splitlines()
    expect([line for line in lines if not line.startswith("journald: ")], [],
           "lines of its log that do not begin with its name")
