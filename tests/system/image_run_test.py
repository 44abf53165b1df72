"""The script that boots an image in QEMU (scripts/image/run.sh, `bedplate-image run`): the ports that
it forwards. A script in QEMU's place prints its arguments."""

import os

from harness import expect, expect_in, test

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts/image/run.sh")
# name: the arguments behind the image, the environment, and the forwarded ports.
FORWARDS = {
    "usual": ([], {}, [("tcp", 10809, 10809)]),
    "port": ([], {"PORT": "20809"}, [("tcp", 20809, 10809)]),
    "one": (["--forward", "8080:80"], {}, [("tcp", 8080, 80)]),
    "several": (["--forward", "8080:80", "-s", "--forward", "udp:5004:5006"], {},
                [("tcp", 8080, 80), ("udp", 5004, 5006)]),
    "port_too": (["--forward", "8080:80"], {"PORT": "20809"},
                 [("tcp", 8080, 80), ("tcp", 20809, 10809)]),
}
REFUSED = ["80", "80:", ":80", "0:80", "80:65536", "80:http", "tcp:80:80", "1.2.3.4:80:80", ""]


def run_with(box, *words, code=0, **environment):
    box.write("qemu-system-x86_64", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    os.chmod(box.path("qemu-system-x86_64"), 0o755)
    os.makedirs(box.path("image"), exist_ok=True)
    box.write("image/cmdline", "quiet")
    usual = {name: value for name, value in os.environ.items() if name != "PORT"}
    return box.run(RUN, *words, expect_code=code,
                   env={**usual, "PATH": f"{box.directory}:{os.environ['PATH']}", **environment})


@test(case=FORWARDS)
def ports_are_forwarded(box, case):
    words, environment, wanted = FORWARDS[case]
    orders = [[box.path("image"), *words]]
    if "-s" not in words:  # QEMU's options follow the image
        orders.append([*words, box.path("image")])
    for order in orders:
        arguments = run_with(box, *order, **environment).stdout.splitlines()
        rules = "".join(f",hostfwd={protocol}:127.0.0.1:{host}-10.0.2.15:{guest}"
                        for protocol, host, guest in wanted)
        expect_in(f"user,id=net{rules}", arguments, "the network")
        expect(arguments.count("-s"), words.count("-s"), "QEMU's own options")
        expect("--forward" in arguments, False, "QEMU got it as well")


@test(value=REFUSED)
def what_is_no_pair_of_ports_is_refused(box, value):
    said = run_with(box, "--forward", value, box.path("image"), code=2).stderr
    expect(said, f"image: reading --forward {value}: this is not HOST:GUEST; write two ports, such "
                 "as 8080:80\n", "the refusal")


@test()
def an_image_must_be_named(box):
    said = run_with(box, "--forward", "8080:80", code=2).stderr
    expect(said, "image: reading the command line: no image is named; name one behind run\n",
           "the refusal")
