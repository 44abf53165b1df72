"""The manual pages: those that the program prints, and that of bedplate-image, from its --help."""

import re
import subprocess

HEAD = '.TH {name} {section} "" "bedplate {version}" "{title}"\n'


def said(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def troff(text):
    """Escapes plain text for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"^\.", r"\\&.", text, flags=re.M)


def block(text):
    return f".nf\n{troff(text).rstrip()}\n.fi\n"


def image_page(command, version):
    """bedplate-image(1): the command's own help, with its lines unchanged."""
    usage, _, rest = said(command, "--help").partition("\n\n")
    page = HEAD.format(name="BEDPLATE-IMAGE", section=1, version=version, title="User Commands")
    page += ".SH NAME\nbedplate\\-image \\- make and boot images of appliances\n"
    page += f".SH SYNOPSIS\n{block(usage.removeprefix('usage: '))}"
    page += f".SH DESCRIPTION\n{block(rest)}"
    return page + ".SH SEE ALSO\n.BR bedplate (1),\n.BR bedplate.toml (5)\n"


def pages(program):
    """{path below share/man: text}."""
    return {"man1/bedplate.1": said(program, "--man"),
            "man5/bedplate.toml.5": said(program, "keys", "--man")}
