"""The smallest configuration of an appliance, which tests extend."""

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

# Functions for scripts in a guest. `begin NAME WORDS COMMAND...` starts a command and waits until
# its log, /tmp/NAME.log, has the words, or until it has ended; $NAME is its process. `serve NAME
# [PROGRAM [WORDS]]` starts a program in this way, from /tmp/NAME.toml. The defaults are bedplate
# and its words of readiness. The text has no single quote, so that it can be quoted as a whole.
SERVE = r"""
begin() {
  local name="$1" words="$2"
  shift 2
  : > /tmp/$name.log  # without what an earlier one has said
  "$@" > /tmp/$name.log 2>&1 &
  eval "$name=$!"
  until grep -q "$words" /tmp/$name.log || ! kill -0 $! 2> /dev/null; do sleep 0.1; done
}
serve() {
  begin "$1" "${3:-bedplate: ready}" ${2:-/bedplate} run /tmp/$1.toml
}
"""


def smallest(name, pool="64 MiB", sockets="epoll", in_pool="", more=""):
    """`in_pool`: further keys of [pool]; `more`: further tables."""
    return SMALLEST.format(name=name, pool=pool, sockets=sockets, in_pool=in_pool, more=more)
