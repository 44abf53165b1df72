// The nodes of a pool's pages, as the kernel reports them for each page.
//
// A machine with one node tests little; the guest (tests/guest) has two nodes.
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/numa.h"
#include "tests/support/hugepages.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::LentHugepages;
using bedplate::test::TestPool;

namespace {

// The node of each page of `segment`; negative: the kernel's error for that page.
std::vector<int> nodes_of_pages(const Segment& segment) {
  std::vector<void*> pages;
  for (uint64_t at = 0; at < segment.bytes; at += page_bytes(segment.page)) {
    pages.push_back(segment.address + at);
  }
  std::vector<int> nodes(pages.size(), -1);
  const long outcome =
      syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0);
  LONGS_EQUAL(0, outcome);
  return nodes;
}

void check_placement(PageSize page, uint64_t bytes) {
  TestPool pool;
  const NodeSet nodes = memory_nodes();
  for (int node = 0; node < kNodeCountMax; ++node) {
    if (!nodes[static_cast<size_t>(node)]) continue;
    const Segment& segment = *pool->create_segment("part", bytes, page, 2, node).take();
    LONGS_EQUAL(node, segment.node);
    for (const int found : nodes_of_pages(segment)) LONGS_EQUAL(node, found);
  }
}

}  // namespace

TEST_GROUP(NodePlacement){};

TEST(NodePlacement, SmallPagesLieOnTheirNode) { check_placement(PageSize::k4KiB, 80 * kMiB); }

TEST(NodePlacement, HugepagesLieOnTheirNode) {
  const LentHugepages pages(4 * memory_nodes().count());
  if (!pages.are_there()) BP_SKIP("no hugepages of 2 MiB can be reserved");
  check_placement(PageSize::k2MiB, 8 * kMiB);
}

TEST(NodePlacement, GiganticPagesLieOnTheirNode) {
  const NodeSet nodes = memory_nodes();
  for (int node = 0; node < kNodeCountMax; ++node) {
    if (nodes[static_cast<size_t>(node)] &&
        hugepage_counts(PageSize::k1GiB, node).available_count == 0) {
      BP_SKIP("no hugepages of 1 GiB are free");
    }
  }
  check_placement(PageSize::k1GiB, kGiB);
}

// The segment does not spill over to a node with free memory. It is refused, with a cure for its
// own node.
TEST(NodePlacement, ANodeWithoutEnoughPagesIsRefused) {
  if (memory_nodes().count() == 1) BP_SKIP("this machine has one NUMA node");
  const uint64_t available_count = hugepage_counts(PageSize::k2MiB, 1).available_count;
  if (hugepage_counts(PageSize::k2MiB, 0).available_count == 0) {
    BP_SKIP("no hugepages of 2 MiB are free");
  }
  TestPool pool;
  const auto created =
      pool->create_segment("part", (available_count + 1) * 2 * kMiB, PageSize::k2MiB, 1, 1);
  CHECK_FALSE(created.ok());
  STRCMP_CONTAINS("in pages of 2 MiB on node 1", created.error().doing);
  STRCMP_CONTAINS("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
                  created.error().cure);
  LONGS_EQUAL(0, pool->segment_count());
}

TEST(NodePlacement, ANodeThatIsNotThereIsRefused) {
  if (memory_nodes().count() == 1) BP_SKIP("this machine has one NUMA node");
  TestPool pool;
  const auto created = pool->create_segment("part", 4 * kMiB, PageSize::k4KiB, 1, 77);
  CHECK_FALSE(created.ok());
  STRCMP_EQUAL("taking 4 MiB for part in pages of 4 KiB on node 77", created.error().doing);
  STRCMP_EQUAL("Invalid argument", created.error().answer);
  STRCMP_CONTAINS("choose another node", created.error().cure);
}
