#include "platform/numa.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/text_words.h"

namespace bedplate {

NodeSet parse_nodes(const char* list) noexcept {
  NodeSet nodes;
  for (std::string_view rest = list; !rest.empty() && rest.front() >= '0' && rest.front() <= '9';) {
    const size_t first = take_number<size_t>(&rest, nodes.size());
    size_t last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      last = take_number<size_t>(&rest, first);
    }
    for (size_t node = first; node <= last && node < nodes.size(); ++node) nodes.set(node);
    if (!rest.starts_with(',')) break;
    rest.remove_prefix(1);
  }
  return nodes;
}

NodeSet memory_nodes() noexcept {
  char list[1024] = "";
  const bool is_read =
      read_text_file("/sys/devices/system/node/has_memory", list, sizeof list).ok();
  const NodeSet nodes = parse_nodes(is_read ? list : "");
  return nodes.any() ? nodes : NodeSet(1);
}

int node_of_cpu(int cpu) noexcept {
  const NodeSet nodes = memory_nodes();
  for (int node = 0; node < kNodeCountMax; ++node) {
    if (!nodes[static_cast<size_t>(node)]) continue;
    char path[96];
    std::snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpu%d", node, cpu);
    if (access(path, F_OK) == 0) return node;
  }
  return 0;
}

int node_of_device(const char* directory) noexcept {
  constexpr char kFile[] = "/numa_node";
  char path[PATH_MAX + sizeof kFile];
  if (realpath(directory, path) == nullptr) return kAnyNode;
  for (char* end = path + std::strlen(path); end != nullptr && end != path;) {
    std::memcpy(end, kFile, sizeof kFile);
    char text[32] = "";
    std::string_view digits = read_text_file(path, text, sizeof text).ok() ? text : "";
    const int node = take_number<int>(&digits, kAnyNode);
    if (node >= 0 && node < kNodeCountMax) return node;
    *end = '\0';
    end = std::strrchr(path, '/');
  }
  return kAnyNode;
}

int node_of_block_device(dev_t number) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(number), minor(number));
  return node_of_device(path);
}

NodeText format_node(int node) noexcept {
  NodeText formatted = {"any node"};
  if (node != kAnyNode) std::snprintf(formatted.text, sizeof formatted.text, "node %d", node);
  return formatted;
}

int bind_to_node(void* address, uint64_t bytes, int node) noexcept {
  if (node == kAnyNode || memory_nodes().count() == 1) return 0;
  BP_ASSERT(node >= 0 && node < kNodeCountMax);
  constexpr int kWordBits = 64;
  unsigned long nodes[kNodeCountMax / kWordBits] = {};
  nodes[node / kWordBits] = 1UL << (node % kWordBits);
  // The kernel uses one bit fewer than `maxnode` says.
  return syscall(SYS_mbind, address, bytes, MPOL_BIND, nodes, kNodeCountMax + 1UL, 0) == 0 ? 0
                                                                                           : errno;
}

}  // namespace bedplate
