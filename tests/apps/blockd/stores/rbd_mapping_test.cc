// Maps Ceph images on a simulated bus, so the kernel of this machine needs no rbd module.
// tests/guest/ceph_test.py tests the real module.
#include "apps/blockd/stores/rbd_mapping.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/apps/blockd/stores/fake_monitor.h"
#include "tests/support/fake_root.h"
#include "tests/support/in_heap.h"
#include "tests/support/patience.h"
#include "tests/support/progress_news.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::FakeMonitor;
using test::kMonitorBanner;

namespace {

constexpr char kKey[] = "AQBSaWduIG9mIGEgdGVzdCwgbm8gc2VjcmV0IQ==";

// A key that the test itself never copies to the heap. The test searches for the end of the key,
// because the beginning of a freed block may be overwritten.
constexpr char kOtherKeyring[] =
    "[client.bed]\n\tkey = QmVkcGxhdGUgbG9va3MgZm9yIHRoaXMgaW4gaXRzIGhlYXA=\n";
constexpr std::string_view kSought = "IHRoaXMgaW4gaXRzIGhlYXA=";
static_assert(std::string_view(kOtherKeyring).find(kSought) != std::string_view::npos);

// A bus whose devices are directories, as in sysfs. It runs in the child process, so its log is a
// file.
class FakeBus final : public RbdBus {
 public:
  explicit FakeBus(const std::string& root) : RbdBus(root), root_(root) {}

  int add_error = 0;
  int remove_error = 0;
  int busy_count = 0;  // how many calls of remove() return EBUSY first
  bool hangs = false;
  bool is_late = false;  // add() makes the device, but never returns
  bool forgets = false;  // add() returns success, but makes no device
  bool may = true;

  bool is_allowed() const override { return may; }
  int add(const std::string& text) override {
    log("add, with " + std::to_string(descriptor_count()) + " descriptors");
    while (hangs) pause();
    if (add_error != 0) return add_error;
    uint32_t id = 7;
    while (has_device(id)) ++id;
    if (!forgets) make_device(id, text);
    while (is_late) pause();
    return 0;
  }
  int remove(uint32_t id) override {
    if (busy_count-- > 0) return EBUSY;
    if (remove_error != 0) return remove_error;
    log("remove " + std::to_string(id));
    std::filesystem::remove_all(device(id));
    return 0;
  }
  void make_device(uint32_t id, const std::string& text) {
    std::filesystem::create_directories(device(id));
    std::ofstream(device(id) + "/config_info") << text << "\n";
  }
  bool has_device(uint32_t id) const { return std::filesystem::exists(device(id)); }
  std::string logged() const {
    std::ostringstream all;
    all << std::ifstream(root_ + "/log").rdbuf();
    return all.str();
  }

 private:
  std::string device(uint32_t id) const { return bus() + "/devices/" + std::to_string(id); }
  void log(const std::string& line) {
    std::ofstream(root_ + "/log", std::ios::app) << line << "\n";
  }
  static int descriptor_count() {
    int count = -1;  // leaves out the descriptor of `all`
    DIR* all = opendir("/proc/self/fd");
    while (const dirent* each = readdir(all)) count += each->d_name[0] != '.' ? 1 : 0;
    closedir(all);
    return count;
  }

  const std::string root_;
};

}  // namespace

TEST_GROUP(RbdMapping) {
  test::FakeRoot root;
  FakeBus bus{root.path()};
  FakeMonitor monitor{kMonitorBanner};
  CephSettings ceph;
  RbdImage image = {"rbd", "disk", true};
  char text[1024];

  void setup() override {
    root.write("/sys/bus/rbd/add_single_major", "");
    root.write("/keyring", std::string("[client.bed]\nkey = ") + kKey + "\n");
    ceph = {{monitor.address()}, "bed", root.path() + "/keyring", 60};
    LONGS_EQUAL(0, chmod(ceph.keyring.c_str(), 0600));
  }
  Result<std::shared_ptr<MadeDevice>> made() {
    CephMonitors monitors;
    return RbdMaker(bus, monitors, ceph, image).make();
  }
  std::string problem() {
    const auto device = made();
    return device.ok() ? "" : format_error(device.error(), text, sizeof text);
  }
  static bool has_child() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }
};

TEST(RbdMapping, AnImageIsNamedByItsPoolAndItself) {
  auto good = parse_rbd_image("rbd/disk-0.1");
  CHECK(good.ok());
  STRCMP_EQUAL("rbd", good.value().pool.c_str());
  STRCMP_EQUAL("disk-0.1", good.value().image.c_str());
  for (const char* bad : {"disk", "/disk", "rbd/", "", "a/b/c", "rbd/disk@snap", "rbd/a b", "r,o/d",
                          "rbd/a\tb", "rbd/a\nb"}) {
    const auto refused = parse_rbd_image(bad);
    CHECK_TEXT(!refused.ok(), bad);
    CHECK(refused.error().kind == ErrorKind::kConfiguration);
  }
}

TEST(RbdMapping, TheKernelIsToldOfItInOneLine) {
  ceph.monitors = {test::address_of("tcp:10.0.0.1:6789"), test::address_of("tcp:10.0.0.2:6789")};
  STRCMP_EQUAL("10.0.0.1:6789,10.0.0.2:6789 name=bed,secret=KEY,mount_timeout=60,exclusive,"
               "lock_timeout=60 rbd disk -",
               rbd_map_text(ceph, "KEY", image).c_str());
  image.is_writable = false;
  STRCMP_EQUAL("10.0.0.1:6789,10.0.0.2:6789 name=bed,secret=KEY,mount_timeout=60,ro rbd disk -",
               rbd_map_text(ceph, "KEY", image).c_str());
}

TEST(RbdMapping, IsThereAsLongAsItIsHeld) {
  bus.busy_count = 3;  // as while the kernel tears an io_uring down
  auto device = made();
  CHECK(device.ok());
  STRCMP_EQUAL((root.path() + "/dev/rbd7").c_str(), device.value()->path().c_str());
  CHECK(bus.has_device(7));
  device.value().reset();
  CHECK(!bus.has_device(7));
  CHECK(test::eventually([] { return !has_child(); }));
  // Besides the three standard descriptors: its end of the socket, and that of join_adding().
  STRCMP_EQUAL("add, with 5 descriptors\nremove 7\n", bus.logged().c_str());
}

TEST(RbdMapping, IsMappedOnceForAllThatHaveIt) {
  image.is_writable = false;
  CephMonitors monitors;
  RbdMaker maker(bus, monitors, ceph, image);
  auto first = maker.make();
  auto second = maker.make();
  CHECK(first.ok() && second.ok() && first.value() == second.value());
  first.value().reset();
  CHECK(bus.has_device(7));
  second.value().reset();
  STRCMP_EQUAL("add, with 5 descriptors\nremove 7\n", bus.logged().c_str());
  CHECK(maker.make().ok());  // maps the image again after its last holder has gone
}

// The refusal is remembered: otherwise each of many volumes would wait for it in turn.
TEST(RbdMapping, WhatWasRefusedIsNotAskedAgain) {
  bus.add_error = ENOENT;
  CephMonitors monitors;
  RbdMaker maker(bus, monitors, ceph, image);
  CHECK(!maker.make().ok());
  const auto again = maker.make();
  STRCMP_CONTAINS("there is no such pool", again.ok() ? "" : again.error().answer);
  STRCMP_EQUAL("add, with 5 descriptors\n", bus.logged().c_str());
}

TEST(RbdMapping, IsUnmappedWhenItsHolderIsKilled) {
  const pid_t holder = fork();
  if (holder == 0) {
    auto device = made();
    raise(device.ok() ? SIGKILL : SIGABRT);
  }
  int status = 0;
  LONGS_EQUAL(holder, waitpid(holder, &status, 0));
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  CHECK(test::eventually([this] { return bus.logged().find("remove 7") != std::string::npos; }));
}

TEST(RbdMapping, WhatAnotherLeftIsUnmappedFirst) {
  const std::string same = rbd_map_text(ceph, kKey, image);
  bus.make_device(3, same);
  bus.make_device(4, same + "x");  // another mapping: its text differs
  const auto device = made();
  CHECK(device.ok());
  STRCMP_EQUAL("remove 3\nadd, with 5 descriptors\n", bus.logged().c_str());
  CHECK(bus.has_device(4) && !bus.has_device(3));
}

// Two appliances on one machine map the same image for reading; each has a device of its own.
TEST(RbdMapping, WhatAnotherReadsStaysAndIsMappedOnceMore) {
  image.is_writable = false;
  auto first = made();
  auto second = made();
  CHECK(first.ok() && second.ok());
  STRCMP_EQUAL((root.path() + "/dev/rbd7").c_str(), first.value()->path().c_str());
  STRCMP_EQUAL((root.path() + "/dev/rbd8").c_str(), second.value()->path().c_str());
  first.value().reset();
  CHECK(!bus.has_device(7) && bus.has_device(8));
  auto third = made();
  CHECK(third.ok() && bus.has_device(7));
  second.value().reset();
  CHECK(bus.has_device(7) && !bus.has_device(8));
}

TEST(RbdMapping, WhileAnotherAddsNobodyKnowsWhatIsLeft) {
  bus.make_device(3, rbd_map_text(ceph, kKey, image));
  const Fd adding = bus.join_adding();
  STRCMP_CONTAINS("another appliance is mapping an image; until that ends, it is unknown whether",
                  problem().c_str());
  CHECK(bus.has_device(3));
}

TEST(RbdMapping, WhatAnotherWritesToIsRefused) {
  const auto first = made();
  CHECK(first.ok());
  STRCMP_CONTAINS("it is already mapped, as", problem().c_str());
  STRCMP_EQUAL("add, with 5 descriptors\n", bus.logged().c_str());
  CHECK(bus.has_device(7));
}

// A device that another process has just added is not held yet.
TEST(RbdMapping, NothingIsTakenForALeftOverWhileAnotherAdds) {
  image.is_writable = false;
  bus.make_device(3, rbd_map_text(ceph, kKey, image));
  Fd adding = bus.join_adding();
  CHECK(adding.is_open() && !bus.alone().is_open());
  CHECK(bus.join_adding().is_open());  // several processes may add at once
  auto device = made();
  CHECK(device.ok() && bus.has_device(3));
  adding.close();
  CHECK(bus.alone().is_open());
}

TEST(RbdMapping, ADeviceIsHeldByOne) {
  bus.make_device(3, "text");
  CHECK(!bus.hold("other").has_value());
  auto held = bus.hold("text");
  CHECK(held.has_value());
  LONGS_EQUAL(3, held->id);
  CHECK(!bus.hold("text").has_value());
  bus.make_device(4, "text");
  auto next = bus.hold("text");
  LONGS_EQUAL(4, next.has_value() ? next->id : 0);
  held.reset();
  held = bus.hold("text");
  LONGS_EQUAL(3, held.has_value() ? held->id : 0);
}

TEST(RbdMapping, WhatIsOpenStays) {
  bus.make_device(3, rbd_map_text(ceph, kKey, image));
  bus.remove_error = EBUSY;
  STRCMP_CONTAINS("/dev/rbd3: Device or resource busy; end what has it open", problem().c_str());
  STRCMP_EQUAL("", bus.logged().c_str());
}

TEST(RbdMapping, EachRefusalHasItsCure) {
  const struct {
    int error;
    const char* said;
  } refusals[] = {
      {ENOENT, "there is no such pool, or no such image in it; list the images (rbd ls rbd)"},
      {EACCES, "the cluster refuses the key (Permission denied); compare the keyring"},
      {EPERM, "the cluster refuses the key (Operation not permitted); compare the keyring"},
      {EINVAL, "Invalid argument; enable the lock that a writable image needs: rbd"},
      {ENXIO, "the image has features that this kernel lacks; disable those that dmesg names"},
      {EROFS, "another client has locked it; stop that client (rbd status rbd/disk shows it)"},
      {ETIMEDOUT, "there was no result within 60 s; check whether monitors and OSDs run"},
      {ESHUTDOWN, "the cluster has put this machine on its blocklist; find it with ceph osd"},
      {EIO, "Input/output error; see dmesg"},
  };
  for (const auto& each : refusals) {
    bus.add_error = each.error;
    STRCMP_CONTAINS(
        (std::string("mapping the Ceph image rbd/disk as client.bed: ") + each.said).c_str(),
        problem().c_str());
    CHECK(test::eventually([] { return !has_child(); }));
  }
}

TEST(RbdMapping, AnImageThatIsOnlyReadNeedsNoLock) {
  image.is_writable = false;
  for (const auto& [error, said] : {std::pair(EINVAL, "Invalid argument; see dmesg"),
                                    std::pair(ETIMEDOUT, "OSDs run (ceph -s)")}) {
    bus.add_error = error;
    const std::string its = problem();
    STRCMP_CONTAINS(said, its.c_str());
    CHECK(its.find("lock") == std::string::npos);
    CHECK(test::eventually([] { return !has_child(); }));
  }
}

TEST(RbdMapping, AClusterThatHangsIsGivenUp) {
  bus.hangs = true;
  ceph.timeout_s = 1;
  const test::ProgressNews news;
  STRCMP_CONTAINS("there was no result within 1 s", problem().c_str());
  CHECK(news.count_of("mapping the Ceph image rbd/disk: for ", ", 4 s at most") > 1);
  CHECK(test::eventually([] { return !has_child(); }));
}

TEST(RbdMapping, WhatIsMappedTooLateIsUnmapped) {
  bus.is_late = true;
  ceph.timeout_s = 1;
  STRCMP_CONTAINS("there was no result within 1 s", problem().c_str());
  CHECK(!bus.has_device(7));
}

TEST(RbdMapping, WhatOthersHaveStaysWhereOneIsMappedTooLate) {
  image.is_writable = false;
  ceph.timeout_s = 1;
  const std::string same = rbd_map_text(ceph, kKey, image);
  for (const uint32_t id : {3U, 4U}) bus.make_device(id, same);
  const auto one = bus.hold(same);
  const auto other = bus.hold(same);
  CHECK(one.has_value() && other.has_value());
  bus.is_late = true;
  STRCMP_CONTAINS("there was no result within 1 s", problem().c_str());
  CHECK(bus.has_device(3) && bus.has_device(4) && !bus.has_device(7));
}

TEST(RbdMapping, NothingIsAskedOfTheKernelThatCannotBe) {
  bus.may = false;
  STRCMP_CONTAINS("this needs CAP_SYS_ADMIN; start it as root", problem().c_str());
  bus.may = true;
  ceph.user = "other";
  STRCMP_CONTAINS("it has no [client.other]", problem().c_str());
  ceph.user = "bed";
  const FakeMonitor silent("");
  ceph.monitors = {silent.address()};
  ceph.timeout_s = 1;
  STRCMP_CONTAINS("none answered within 1 s", problem().c_str());
  std::filesystem::remove(root.path() + "/sys/bus/rbd/add_single_major");
  STRCMP_CONTAINS("the kernel's module rbd is not loaded; modprobe rbd", problem().c_str());
  STRCMP_EQUAL("", bus.logged().c_str());
}

TEST(RbdMapping, AKernelThatShowsNoDeviceIsNotBelieved) {
  bus.forgets = true;
  STRCMP_CONTAINS("No such device; see dmesg", problem().c_str());
}

TEST(RbdMapping, AnImageThatStaysMappedIsSaid) {
  bus.remove_error = EIO;
  auto device = made();
  CHECK(device.ok());
  test::StderrCapture capture;
  device.value().reset();
  STRCMP_CONTAINS("unmapping rbd/disk, which is", capture.text().c_str());
  STRCMP_CONTAINS("Input/output error", capture.text().c_str());
  CHECK_FALSE(has_child());
}

TEST(RbdMapping, TheRealBusWritesWhatItIsTold) {
  RbdBus real(root.path());
  CHECK(real.is_there());
  LONGS_EQUAL(0, real.add("some text"));
  std::ostringstream seen;
  seen << std::ifstream(root.path() + "/sys/bus/rbd/add_single_major").rdbuf();
  STRCMP_EQUAL("some text", seen.str().c_str());
  LONGS_EQUAL(ENOENT, real.remove(7));
  CHECK(!real.find("some text").has_value());
}

// A crash record contains the heap, so the key must not stay there.
TEST(RbdMapping, LeavesNothingOfTheKeyInTheHeap) {
  BP_SKIP_UNDER_SANITIZER();
  const Fd file(open(ceph.keyring.c_str(), O_WRONLY | O_TRUNC));
  LONGS_EQUAL(sizeof kOtherKeyring - 1,
              write(file.number(), kOtherKeyring, sizeof kOtherKeyring - 1));
  bus.add_error = EACCES;
  STRCMP_CONTAINS("the cluster refuses the key", problem().c_str());
  CHECK_FALSE(test::is_in_heap(kSought));
  bus.add_error = 0;
  bus.forgets = true;
  CHECK(!made().ok());
  CHECK_FALSE(test::is_in_heap(kSought));
  ceph.user = "other";
  STRCMP_CONTAINS("no [client.other]", problem().c_str());
  CHECK_FALSE(test::is_in_heap(kSought));
  ceph.user = "bed";
  ceph.monitors.clear();  // no monitor answers
  ceph.timeout_s = 0;
  CHECK(!made().ok());
  CHECK_FALSE(test::is_in_heap(kSought));
  const std::string found(kOtherKeyring);
  CHECK(test::is_in_heap(kSought));  // the search finds a key that is there
}
