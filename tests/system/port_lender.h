// What comes to a socket of a port is lent, and written to a file, from where it lies: [lend], a
// service of port-echo. Each datagram has a number of 8 bytes in front. It goes to all peers of
// `to` at once, each of which says at what address it has read it, and what; when all loans are
// back and the file has it, its sender gets a line:
//
//     NUMBER at ADDRESS; PEER ADDRESS SUM; ... file BYTES
//
// Other shards, processes (`port-echo read SOCKET NAME`) and appliances with [lend] are peers.
// Nothing but installed headers is used: a service of others can do the same (docs/ports.md).
#pragma once

#include <memory>

#include "apps/boot/service.h"

namespace bedplate::test {

std::unique_ptr<Service> make_lender();
// Reads what is lent to it, until the owner has gone. Returns the exit code.
int run_reader(const char* socket_path, const char* process);

}  // namespace bedplate::test
