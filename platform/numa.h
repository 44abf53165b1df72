// NUMA nodes: the nodes with memory, the node of a core, and pages from a chosen node.
//
// A kernel without NUMA looks like a machine with one node: only node 0 exists, and nothing is
// bound. Threads: any. Nothing is allocated.
#pragma once

#include <bitset>
#include <cstdint>

#include <sys/types.h>

#include "platform/version.h"

namespace bedplate {

inline constexpr int kAnyNode = -1;
inline constexpr int kNodeCountMax = 1024;  // the largest that a kernel can be built for

using NodeSet = std::bitset<kNodeCountMax>;

// The nodes in a list as the kernel writes it: "0-1,3". Parsing ends at the first byte that is no
// part of a list; nodes from kNodeCountMax on are left out.
NodeSet parse_nodes(const char* list) noexcept;

// The nodes of this machine that have memory; at least one.
NodeSet memory_nodes() noexcept;

// The node of core `cpu`; 0 for a core that does not exist or has no local memory.
int node_of_cpu(int cpu) noexcept;

// The node of a device, by its directory in sysfs: the node that the device names, or else the node
// of its nearest parent that names one. Returns kAnyNode if none names one, as on machines with one
// node, or if the device does not exist.
int node_of_device(const char* directory) noexcept;

// The same for the block device `number`; for a partition, the node of its device.
int node_of_block_device(dev_t number) noexcept;

// "node 1"; kAnyNode is "any node".
struct NodeText {
  char text[16];
};
NodeText format_node(int node) noexcept;

// From now on new pages of [address, address + bytes) come from `node` and no other: if that node
// has none left, taking them fails. Present pages stay on their node. Does nothing if `node` is
// kAnyNode, or if only one node has memory.
// Requires: `address` is the start of a page; `node` is kAnyNode, or 0 to kNodeCountMax - 1.
// Returns 0 or an errno value. EINVAL: there is no such node, or it has no memory. EPERM: the call
// is forbidden, for example by a container.
int bind_to_node(void* address, uint64_t bytes, int node) noexcept;

}  // namespace bedplate
