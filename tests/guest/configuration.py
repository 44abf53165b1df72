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


def smallest(name, pool="64 MiB", sockets="epoll", in_pool="", more=""):
    """`in_pool`: further keys of [pool]; `more`: further tables."""
    return SMALLEST.format(name=name, pool=pool, sockets=sockets, in_pool=in_pool, more=more)
