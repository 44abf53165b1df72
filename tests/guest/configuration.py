"""The smallest configuration of an appliance, for tests to add to."""

SMALLEST = """
[appliance]
name = "{name}"
[pool]
bytes = "{pool}"
heap_min_bytes = "16 MiB"
{in_pool}
[event_loop]
sockets = "{sockets}"
[[shard]]
name = "main"
cpu = 0
{more}
"""


# A volume of an NBD server, for `more`.
ONE_VOLUME = """
[blockd]
listen = ["unix:/tmp/socket"]
max_connections = 4
[[blockd.volume]]
name = "disk"
buffer_bytes = "33 MiB"
{store}
"""

# For scripts in a guest. `serve NAME [PROGRAM [WORDS]]` starts a program, bedplate if none is named,
# from /tmp/NAME.toml, and waits until its log, /tmp/NAME.log, has the words, those of being ready if
# none are given, or until it has ended; $NAME is its process.
SERVE = r"""
serve() {
  : > /tmp/$1.log  # what an earlier one has said is not this one's
  ${2:-/bedplate} run /tmp/$1.toml > /tmp/$1.log 2>&1 &
  eval "$1=$!"
  until grep -q "${3:-bedplate: ready}" /tmp/$1.log || ! kill -0 $! 2> /dev/null; do sleep 0.1; done
}
"""


def smallest(name, pool="64 MiB", sockets="epoll", in_pool="", more=""):
    """`in_pool`: further keys of [pool]; `more`: further tables."""
    return SMALLEST.format(name=name, pool=pool, sockets=sockets, in_pool=in_pool, more=more)
