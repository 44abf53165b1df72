"""Generates the manual pages from the program's own output: --help, and keys --json."""

import json
import re
import subprocess

HEAD = '.TH {name} {section} "" "bedplate {version}" "{title}"\n'


def said(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def troff(text):
    """Escapes plain text for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^\.", r"\\&.", text, flags=re.M)


def markdown(text):
    """A help sentence of the configuration: links become their text, code becomes bold."""
    text = troff(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)


def block(text):
    return f".nf\n{troff(text).rstrip()}\n.fi\n"


def commands(program):
    """The names of the program's commands, in its order."""
    return re.findall(r"^  ([a-z]+) ", said(program, "--help"), re.M)


def program_page(program, version):
    page = HEAD.format(name="BEDPLATE", section=1, version=version, title="User Commands")
    page += ".SH NAME\nbedplate \\- appliances in a pool of pinned memory\n"
    page += ".SH SYNOPSIS\n.B bedplate\n.I COMMAND\n[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n"
    page += block(said(program, "--help").split("\n", 2)[2])
    for command in commands(program):
        usage, _, rest = said(program, command, "--help").partition("\n\n")
        page += f".SH {command.upper()}\n{block(usage.removeprefix('usage: '))}.PP\n{block(rest)}"
    page += (".SH FILES\n.TP\n.I /run/bedplate/NAME.stats\nThe counters of the running appliance "
             "NAME, as \\fBbedplate stats\\fR prints them.\n"
             ".TP\n.I /run/bedplate/NAME.crash\nThe same of its latest crash, with the record of "
             "it, for \\fBbedplate stats \\-\\-from\\fR.\n"
             ".TP\n.I /etc/bedplate/NAME.toml\n"
             "The configuration that the unit \\fBbedplate@NAME.service\\fR runs.\n")
    return page + ".SH SEE ALSO\n.BR bedplate\\-image (1),\n.BR bedplate.toml (5)\n"


def keys_page(program, version):
    keys = json.loads(said(program, "keys", "--json"))
    page = HEAD.format(name="BEDPLATE.TOML", section=5, version=version, title="File Formats")
    page += (".SH NAME\nbedplate.toml \\- the configuration of an appliance\n.SH DESCRIPTION\n"
             "One file in TOML 1.0 configures an appliance. It is read strictly: an unknown key, a "
             "wrong type or a value out of range stops the boot.\n\\fBbedplate check\\fR \\fIFILE"
             "\\fR prints all its errors.\n")
    table = None
    for key in keys:
        its_table, _, name = key["key"].rpartition(".")
        if its_table != table:
            table = its_table
            page += f".SH [{troff(table)}]\n"
        page += (f".TP\n\\fB{troff(name)}\\fR ({troff(key['type'])}; {troff(key['default'])})\n"
                 f"{markdown(key['help'])}\n")
        if key["range"]:
            page += f"Range: {troff(key['range'])}.\n"
    return page + ".SH SEE ALSO\n.BR bedplate (1)\n"


def image_page(command, version):
    """bedplate-image(1): the command's own help, with its lines unchanged."""
    usage, _, rest = said(command, "--help").partition("\n\n")
    page = HEAD.format(name="BEDPLATE-IMAGE", section=1, version=version, title="User Commands")
    page += ".SH NAME\nbedplate\\-image \\- make and boot images of appliances\n"
    page += f".SH SYNOPSIS\n{block(usage.removeprefix('usage: '))}"
    page += f".SH DESCRIPTION\n{block(rest)}"
    return page + ".SH SEE ALSO\n.BR bedplate (1),\n.BR bedplate.toml (5)\n"


def pages(program, version):
    """{path below share/man: text}."""
    return {"man1/bedplate.1": program_page(program, version),
            "man5/bedplate.toml.5": keys_page(program, version)}
