// Limits of control groups, read from a fake root directory.
#include "platform/cgroup.h"

#include <string>
#include <vector>

#include "platform/units.h"
#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Cgroup) {
  test::FakeRoot root;

  std::vector<CgroupLimit> limits(CgroupResource resource) {
    return cgroup_limits(resource, root.path());
  }
};

TEST(Cgroup, WithoutControllersThereIsNoLimit) {
  LONGS_EQUAL(0, limits(CgroupResource::kHugepages2MiB).size());
  root.write("/proc/self/cgroup", "0::/\n");
  LONGS_EQUAL(0, limits(CgroupResource::kHugepages2MiB).size());
  LONGS_EQUAL(0, limits(CgroupResource::kMemory).size());
}

TEST(Cgroup, MaxIsNoLimit) {
  root.write("/proc/self/cgroup", "0::/box\n");
  root.write("/sys/fs/cgroup/box/hugetlb.2MB.max", "max\n");
  root.write("/sys/fs/cgroup/box/memory.max", "max\n");
  LONGS_EQUAL(0, limits(CgroupResource::kHugepages2MiB).size());
  LONGS_EQUAL(0, limits(CgroupResource::kMemory).size());
}

TEST(Cgroup, EveryGroupAboveCountsLessWhatItUses) {
  root.write("/proc/self/cgroup", "0::/top/middle/box\n");
  root.write("/sys/fs/cgroup/top/hugetlb.2MB.max", "8388608\n");
  root.write("/sys/fs/cgroup/top/hugetlb.2MB.current", "6291456\n");
  root.write("/sys/fs/cgroup/top/middle/box/hugetlb.2MB.max", "4194304\n");
  root.write("/sys/fs/cgroup/top/middle/box/hugetlb.2MB.current", "0\n");
  const auto found = limits(CgroupResource::kHugepages2MiB);
  LONGS_EQUAL(2, found.size());
  STRCMP_EQUAL((root.path() + "/sys/fs/cgroup/top/middle/box/hugetlb.2MB.max").c_str(),
               found[0].file.c_str());
  CHECK_EQUAL(4 * kMiB, found[0].limit_bytes);
  CHECK_EQUAL(4 * kMiB, found[0].available_bytes);
  STRCMP_EQUAL((root.path() + "/sys/fs/cgroup/top/hugetlb.2MB.max").c_str(), found[1].file.c_str());
  CHECK_EQUAL(8 * kMiB, found[1].limit_bytes);
  CHECK_EQUAL(2 * kMiB, found[1].available_bytes);
}

TEST(Cgroup, ReservedPagesHaveALimitOfTheirOwn) {
  root.write("/proc/self/cgroup", "0::/box\n");
  root.write("/sys/fs/cgroup/box/hugetlb.1GB.rsvd.max", "2147483648\n");
  root.write("/sys/fs/cgroup/box/hugetlb.1GB.rsvd.current", "1073741824\n");
  LONGS_EQUAL(0, limits(CgroupResource::kHugepages2MiB).size());
  const auto found = limits(CgroupResource::kHugepages1GiB);
  LONGS_EQUAL(1, found.size());
  CHECK_EQUAL(kGiB, found[0].available_bytes);
}

TEST(Cgroup, TheTopmostGroupOfAContainerIsRead) {
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/sys/fs/cgroup/hugetlb.2MB.max", "0\n");
  const auto found = limits(CgroupResource::kHugepages2MiB);
  LONGS_EQUAL(1, found.size());
  CHECK_EQUAL(0, found[0].available_bytes);
}

TEST(Cgroup, TheFirstVersionIsFoundByItsController) {
  root.write("/proc/self/cgroup",
             "7:cpu,cpuacct:/other\n5:net_cls,hugetlb:/box\n4:memory:/mem\n0::/unified\n");
  root.write("/sys/fs/cgroup/hugetlb/box/hugetlb.2MB.limit_in_bytes", "6291456\n");
  root.write("/sys/fs/cgroup/hugetlb/box/hugetlb.2MB.usage_in_bytes", "2097152\n");
  root.write("/sys/fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes", "9223372036853727232\n");
  root.write("/sys/fs/cgroup/memory/mem/memory.limit_in_bytes", "1048576\n");
  const auto found = limits(CgroupResource::kHugepages2MiB);
  LONGS_EQUAL(2, found.size());
  CHECK_EQUAL(4 * kMiB, found[0].available_bytes);
  CHECK(found[1].available_bytes > kTiB);
  LONGS_EQUAL(1, limits(CgroupResource::kMemory).size());
}

TEST(Cgroup, BesideTheFirstVersionTheSecondIsMountedBelow) {
  root.write("/proc/self/cgroup", "4:memory:/\n0::/box\n");
  root.write("/sys/fs/cgroup/unified/box/hugetlb.2MB.max", "2097152\n");
  const auto found = limits(CgroupResource::kHugepages2MiB);
  LONGS_EQUAL(1, found.size());
  CHECK_EQUAL(2 * kMiB, found[0].available_bytes);
}

// A group that has read many files is not full: the kernel can drop their cached pages.
TEST(Cgroup, CachedFilesCountAsAvailable) {
  root.write("/proc/self/cgroup", "0::/box\n");
  root.write("/sys/fs/cgroup/box/memory.max", "1000000\n");
  root.write("/sys/fs/cgroup/box/memory.current", "900000\n");
  root.write("/sys/fs/cgroup/box/memory.stat",
             "anon 100000\nfile 800000\ninactive_file 500000\nactive_file 200000\nshmem 100000\n");
  const auto found = limits(CgroupResource::kMemory);
  LONGS_EQUAL(1, found.size());
  CHECK_EQUAL(800'000, found[0].available_bytes);
  CHECK_EQUAL(1'000'000, found[0].limit_bytes);
}

TEST(Cgroup, MoreUsedThanAllowedLeavesNothing) {
  root.write("/proc/self/cgroup", "0::/box\n");
  root.write("/sys/fs/cgroup/box/hugetlb.2MB.max", "2097152\n");
  root.write("/sys/fs/cgroup/box/hugetlb.2MB.current", "4194304\n");
  CHECK_EQUAL(0, limits(CgroupResource::kHugepages2MiB)[0].available_bytes);
}

TEST(Cgroup, NonsenseIsNoLimit) {
  root.write("/proc/self/cgroup", "\n:::\n0\n0:\n0::relative\nhugetlb\n::::::\n0::/box");
  root.write("/sys/fs/cgroup/box/hugetlb.2MB.max", "much\n");
  LONGS_EQUAL(0, limits(CgroupResource::kHugepages2MiB).size());
}
