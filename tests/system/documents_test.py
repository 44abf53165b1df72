"""The documents' commands (`    $ COMMAND`), as they stand there, in the order of each document, in a
fresh folder, with a /run and a loopback of their own. The document's appliance runs."""

import glob
import os
import re
import tomllib

from harness import BEDPLATE, Skip, expect_true, need_tools, read_text, test

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# The commands that run here, and the appliance that the document speaks of.
APPLIANCES = {"README.md": "demo", "docs/index.md": "demo", "docs/control.md": "demo",
              "docs/counters.md": "demo", "docs/top.md": "demo", "docs/trace.md": "demo",
              "docs/kvd.md": "demo-kvd", "docs/tsrelay.md": "demo-relay"}
# Commands that need more than this, by how they begin, and the test that runs them.
ELSEWHERE = {
    "bedplate ctl --serial": "control_serial_test",
    "bedplate ctl --socket": "image_test",
    "bedplate ctl blockd.limit": "limits_test",
    "bedplate ctl blockd.unlimit": "limits_test",
    "bedplate ctl kvd.": "kvd_limits_test",
    "CONTROL=/tmp/control scripts/image/run.sh": "image_test",
    "bedplate top --socket": "image_test",
    "bedplate plan --explain inn.toml": "explain_test",
    "chromium --headless": "status_page_test",
    "curl --cacert": "https_test",
    "nbdcopy disk.img 'nbds:": "tls_test",
    "openssl s_client": "kvd_tls_test",
    "qemu-img info --object tls-creds": "tls_test",
    "podman ": "container_test",
    "ffplay ": "tsrelay_clients_test",
}
ENDLESS = ("build/release/bedplate stats demo-relay --watch",)  # ended by Ctrl-C
# The document shows what another load makes of them.
OTHER_LOAD = ("bedplate top --once", "bedplate trace")

SCRIPT = """
set -e
mount -t tmpfs tmpfs /run
ip link set lo up
cd tree
export PATH="$PWD/build/release:$PATH"
bedplate run "apps/$1.toml" 2> ../appliance.log &
trap 'kill -TERM %1; wait %1' EXIT
for i in $(seq 600); do bedplate stats "$1" > ../ready.out 2>&1 && break; sleep 0.1; done
number=0
while [ -e "../$number.sh" ]; do
  status=0
  bash "../$number.sh" > "../$number.out" 2>&1 || status=$?
  echo "$status" > "../$number.status"
  number=$((number + 1))
done
"""


def commands_of(path):
    """The commands of the document, each with the lines that it shows below."""
    text = read_text(os.path.join(REPOSITORY, path))
    found = re.findall(r"^    \$ ((?:.*\\\n)*.*)\n((?:    (?!\$ ).*\n)*)", text, re.M)
    return [(re.sub(r"\\\n\s*", "", command), shown.splitlines()) for command, shown in found]


def is_elsewhere(command):
    return any(command.startswith(begin) for begin in ELSEWHERE)


def recordings_of(config):
    """The files that the relay of this configuration has recorded into."""
    with open(config, "rb") as file:
        streams = tomllib.load(file).get("tsrelay", {}).get("stream", [])
    paths = [one["path"] for stream in streams for one in stream.get("recording", [])]
    return {file for path in paths for file in glob.glob(glob.escape(path) + "*")}


def remove_recordings(config, before):
    for path in recordings_of(config) - before:
        os.remove(path)


def expect_shown(output, command, shown):
    """Checks that `output` has the first word of each line that the document shows, in order."""
    at = 0
    for line in shown:
        word = line.split()[0]
        if word == "..." or line.lstrip().startswith("#"):
            continue
        found = output.find(word, at)
        expect_true(found >= 0, f"{command} shows {word!r}, and prints\n{output}")
        at = found + len(word)


@test(document=list(APPLIANCES))
def commands_do_what_the_document_shows(box, document):
    need_tools("unshare", "ip", "nbdinfo", "nbdcopy", "jq", "nc")
    if 0 not in os.sched_getaffinity(0):
        raise Skip("the demos pin a shard to core 0, which this process may not use")
    name = APPLIANCES[document]
    config = os.path.join(REPOSITORY, f"apps/{name}.toml")
    box.ensure_hugepages(config)
    box.closing.callback(remove_recordings, config, recordings_of(config))
    os.makedirs(box.path("tree/build/release"))
    os.symlink(BEDPLATE, box.path("tree/build/release/bedplate"))
    for entry in ("apps", "LICENSE"):
        os.symlink(os.path.join(REPOSITORY, entry), box.path(f"tree/{entry}"))
    commands = [each for each in commands_of(document) if not is_elsewhere(each[0])]
    expect_true(commands, f"{document} has commands")
    for number, (command, _) in enumerate(commands):
        prefix = "timeout --preserve-status -s INT 3 " if command in ENDLESS else ""
        box.write(f"{number}.sh", f"set -o pipefail\n{prefix}{command}\n")
    box.run("unshare", "--mount", "--net", "--propagation", "private", "bash", "-c", SCRIPT, "bash",
            name)
    for number, (command, shown) in enumerate(commands):
        output = read_text(box.path(f"{number}.out"))
        status = read_text(box.path(f"{number}.status")).strip()
        expected = "130" if command in ENDLESS else "0"
        expect_true(status == expected, f"{command}: exit code {status}\n{output}")
        if not command.startswith(OTHER_LOAD):
            expect_shown(output, command, shown)


@test()
def every_command_is_run_by_some_test(_box):
    seen = set()
    paths = ["README.md", *sorted(glob.glob("docs/*.md", root_dir=REPOSITORY))]
    for path in paths:
        for command, _ in commands_of(path):
            seen |= {begin for begin in ELSEWHERE if command.startswith(begin)}
            expect_true(is_elsewhere(command) or path in APPLIANCES,
                        f"{path}: no test runs {command}")
    expect_true(seen == set(ELSEWHERE), f"no document has {set(ELSEWHERE) - seen}")
    for name in set(ELSEWHERE.values()):
        expect_true(glob.glob(os.path.join(REPOSITORY, f"tests/*/{name}.py")), f"a test {name}")
