// Accepts UDP checksums that the kernel left to a device that never came.
//
// A program of this machine sends a datagram over a virtual interface. The kernel puts only the sum
// over the pseudo header into its UDP checksum: the device would add the rest, but between two
// virtual interfaces there is no device. The kernel takes such a datagram as good; so do we, for
// ports that the kernel carries. A datagram damaged on a wire has this sum once in 65536 times: no
// more often than any other wrong sum.
#pragma once

#include <span>

struct rte_mbuf;

namespace bedplate {

// Marks each of `frames` whose UDP checksum is such a sum as good (RTE_MBUF_F_RX_L4_CKSUM_GOOD).
// Cost: a look at the headers of each.
void accept_local_checksums(std::span<rte_mbuf* const> frames) noexcept;

}  // namespace bedplate
