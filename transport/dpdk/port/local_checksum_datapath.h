// Accepts UDP checksums that the kernel left unfinished.
//
// A program of this machine sends a datagram over a virtual interface. The kernel puts only the sum
// over the pseudo header into its UDP checksum, for the device to complete; but between two virtual
// interfaces there is no device. The kernel accepts such a datagram. Ports over the kernel's
// interfaces accept it, too. A datagram damaged on a wire has this sum once in 65536 times, as
// often as any other wrong sum.
#pragma once

#include <span>

struct rte_mbuf;

namespace bedplate {

// Marks each of `frames` with such a checksum as good (RTE_MBUF_F_RX_L4_CKSUM_GOOD). Looks at UDP
// over IPv4 and over IPv6 without extension headers, behind at most one VLAN tag, and only if all
// headers lie in the first segment. Cost: a look at the headers of each.
void accept_local_checksums(std::span<rte_mbuf* const> frames) noexcept;

}  // namespace bedplate
