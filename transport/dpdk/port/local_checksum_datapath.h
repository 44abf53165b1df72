// Checksums that the kernel has left to a device which never came.
//
// What a program of this machine sends over a virtual interface carries, where the checksum of UDP
// belongs, the sum over the pseudo header alone: the kernel would have the device add the rest, and
// between two virtual interfaces there is none. The kernel passes such a datagram for good; so does
// this, for ports that the kernel carries. A datagram that was damaged on a wire has this very sum
// once in 65536 times: no more often than it has any other wrong one.
#pragma once

#include <span>

struct rte_mbuf;

namespace bedplate {

// Marks those of `frames` whose UDP checksum is such a sum as good (RTE_MBUF_F_RX_L4_CKSUM_GOOD).
// Cost: a look at the headers of each.
void accept_local_checksums(std::span<rte_mbuf* const> frames) noexcept;

}  // namespace bedplate
