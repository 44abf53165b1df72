// A server of lines without a layer.
#include "transport/sockets/stream_server.h"

#include "tests/transport/sockets/stream_server_bodies.h"

using namespace bedplate;

BP_GROUPS_OF_BOTH_BACKENDS(StreamServer, ServerBodies);

BP_SERVER_TESTS(StreamServer)
BP_BOTH_BACKENDS(StreamServer, ADrainEndsWhileAPeerSends, drain_ends_while_a_peer_sends())
