// [lend], a service of port-echo: lends the datagrams of a port's socket, and writes them to a
// file, without a copy. Each datagram begins with a number of 8 bytes. It goes to all peers in `to`
// at once; each answers with the address at which it has read the datagram, and its sum. When all
// loans are back and the file is written, the sender gets a line:
//
//     NUMBER at ADDRESS; PEER ADDRESS SUM; ... file BYTES
//
// Peers are other shards, processes (`port-echo read SOCKET NAME`) and appliances with [lend]. It
// uses only installed headers: a user's service can do the same (docs/ports.md).
#pragma once

#include <memory>

#include "apps/services/service.h"

namespace bedplate::test {

std::unique_ptr<Service> make_lender();
// Reads the datagrams that are lent to it until the owner has gone. Returns the exit code.
int run_reader(const char* socket_path, const char* process);

}  // namespace bedplate::test
