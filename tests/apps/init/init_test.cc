// The parts of the first process that do nothing to the machine. The rest is in tests/guest.
#include "apps/init/init.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apps/init/core_dump.h"
#include "apps/init/drill.h"
#include "apps/init/machine.h"
#include "apps/init/modules.h"
#include "apps/init/watchdog.h"
#include "platform/capabilities.h"
#include "platform/clock.h"
#include "platform/thread_stack.h"
#include "tests/apps/boot/configuration_support.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

namespace {

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

bool is_init_with(std::vector<const char*> words) {
  return is_init(static_cast<int>(words.size()), const_cast<char**>(words.data()));
}

// A directory with the named files, which goes with the test.
class Directory {
 public:
  Directory() { CHECK(mkdtemp(path_) != nullptr); }
  ~Directory() {
    for (const std::string& name : names_) unlink((std::string(path_) + "/" + name).c_str());
    rmdir(path_);
  }
  void add(const std::string& name, const std::string& text) {
    std::ofstream(std::string(path_) + "/" + name) << text;
    names_.push_back(name);
  }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/bp_modules_XXXXXX";
  std::vector<std::string> names_;
};

// A thread's.
void spin_until(void* flag) noexcept {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) cpu_relax();
}

}  // namespace

TEST_GROUP(Init){};

TEST(Init, AnOrdinaryProcessIsNone) {
  CHECK(!is_init_with({}));
  CHECK(!is_init_with({"bedplate"}));
  CHECK(!is_init_with({"/init"}));  // by name, but not process 1
  CHECK(!is_init_with({"/init", "run"}));
  CHECK(!is_init_with({"/sbin/bedplate", kDumpCore}));
  CHECK(is_init_with({"/init", kDumpCore, "1", "/dev/vda", "reboot", "0"}));
}

TEST(Init, ADumpsWordsMustBeThereAndOfTheFirstProcess) {
  const char* words[] = {"/init", kDumpCore, "2", "/nowhere", "halt", "0"};
  LONGS_EQUAL(2, dump_core(2, const_cast<char**>(words)));
  LONGS_EQUAL(2, dump_core(6, const_cast<char**>(words)));
}

TEST(Init, ModulesAreThoseThatTablesAskFor) {
  LONGS_EQUAL(0, needed_modules(parsed(file_with({}))).size());
  const auto c = parsed(
      file_with({}) +
      "[[network]]\ninterface = \"eth0\"\n[[network]]\ninterface = \"eth1\"\ndriver = \"e1000e\"\n"
      "[[network]]\ninterface = \"eth2\"\n[watchdog]\ndriver = \"softdog\"\n"
      "[crash]\ndrivers = [\"ramoops\", \"e1000e\"]\n");
  const std::vector<std::string> expected = {"virtio_net", "e1000e", "softdog", "ramoops"};
  CHECK(needed_modules(c) == expected);
}

TEST(Init, VerbsNeedTheirModules) {
  const std::string verbs = file_with({}) + "[verbs]\n";
  using Names = std::vector<std::string>;
  CHECK(needed_modules(parsed(verbs)) == Names{"ib_uverbs"});
  const Names soft = {"ib_uverbs", "rdma_ucm", "rdma_rxe"};
  CHECK(needed_modules(parsed(verbs + "connect = \"rdma_cm\"\ndriver = \"rdma_rxe\"\n"
                                      "interface = \"eth0\"\n")) == soft);
}

TEST(Init, AModuleThatIsNotThereIsNamed) {
  Directory directory;
  STRCMP_CONTAINS("/order", text_of(load_modules(directory.path(), "", "").error()).c_str());
  directory.add("order", "one.ko\n");
  const std::string text = text_of(load_modules(directory.path(), "", "two").error());
  STRCMP_CONTAINS(("loading the module " + directory.path() + "/one.ko: No such file").c_str(),
                  text.c_str());
  STRCMP_CONTAINS("build the image again", text.c_str());
}

TEST(Init, AModuleThatIsNoneIsRefusedWithItsParameters) {
  Directory directory;
  directory.add("order", "one.ko\n");
  directory.add("one.ko", "no module");
  const auto loaded = load_modules(directory.path(), "quiet one.a=1 two.b=2", "");
  CHECK(!loaded.ok());
  STRCMP_CONTAINS("/one.ko a=1 into kernel ", text_of(loaded.error()).c_str());
}

TEST(Init, NoModulesAreNoError) {
  Directory directory;
  directory.add("order", "");
  CHECK(load_modules(directory.path(), "", "").ok());
}

TEST(Init, AnOptionalModuleThatDoesNotLoadIsALineInTheLog) {
  Directory directory;
  directory.add("order", "one-a.ko\n");
  directory.add("one-a.ko", "no module");
  CHECK(!load_modules(directory.path(), "", "one").ok());
  StderrCapture capture;
  CHECK(load_modules(directory.path(), "", "one_a").ok());
  STRCMP_CONTAINS("/one-a.ko into kernel ", capture.finish().c_str());
}

TEST(Init, ADeviceIsWaitedFor) {
  int asked = 0;
  CHECK(wait_for_device([&asked] { return ++asked == 3; }));
  LONGS_EQUAL(3, asked);
}

TEST(Init, DrillsAreKnownByName) {
  CHECK(parse_drill(std::nullopt).value() == Drill::kNone);
  CHECK(parse_drill("hang").value() == Drill::kHang);
  CHECK(parse_drill("hang-deaf").value() == Drill::kHangDeaf);
  CHECK(parse_drill("overflow").value() == Drill::kOverflow);
  STRCMP_CONTAINS("there is no drill \"fire\"; write assertion, boot, fault",
                  text_of(parse_drill("fire").error()).c_str());
}

// ---- Capabilities ----

TEST(Init, CapabilitiesThatAreKeptDependOnWhatIsServed) {
  const uint64_t boot = uint64_t{1} << 22;
  CHECK(capabilities_to_keep(parsed(file_with({}))) == boot);
  CHECK(capabilities_to_keep(parsed(file_with_messages())) == (boot | uint64_t{1} << 19));
  CHECK(capabilities_to_keep(parsed(file_with_messages("[messages]\nsingle_copy = []\n"))) == boot);
}

TEST(Init, CapabilitiesHaveNames) {
  STRCMP_EQUAL("", name_capabilities(0).c_str());
  STRCMP_EQUAL("SYS_BOOT, SYS_PTRACE",
               name_capabilities(uint64_t{1} << 22 | uint64_t{1} << 19).c_str());
  STRCMP_EQUAL("SYS_BOOT, number 0, number 40",
               name_capabilities(uint64_t{1} << 22 | 1 | uint64_t{1} << 40).c_str());
}

TEST(Init, DroppedCapabilitiesAreGoneFromEveryLaterThread) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer has a thread of its own, which keeps them");
  if (prctl(PR_CAPBSET_READ, 8, 0, 0, 0) != 1 || getuid() != 0) BP_SKIP("needs CAP_SETPCAP");
  const int outcome = test::exit_code_of([] {
    const uint64_t kept = uint64_t{1} << 22;
    if (prctl(PR_CAPBSET_READ, 22, 0, 0, 0) != 1) return 99;
    if (!keep_capabilities(kept).ok()) return 1;
    if (!check_capabilities(kept).ok()) return 2;
    if (check_capabilities(0).ok()) return 3;
    StackedThread later;
    std::atomic<bool> may_end{false};
    if (!later.start("later", &spin_until, &may_end).ok()) return 6;
    const bool is_dropped = check_capabilities(kept).ok();
    may_end = true;
    later.join();
    if (!is_dropped) return 7;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 4;
    return setgid(4711) == 0 ? 5 : 0;
  });
  if (outcome == 99) BP_SKIP("this machine's root may not reboot it");
  LONGS_EQUAL(0, outcome);
}

TEST(Init, AThreadThatKeptItsCapabilitiesIsFound) {
  if (getuid() != 0 || prctl(PR_CAPBSET_READ, 8, 0, 0, 0) != 1) BP_SKIP("needs CAP_SETPCAP");
  LONGS_EQUAL(0, test::exit_code_of([] {
                StackedThread thread;
                std::atomic<bool> may_end{false};
                if (!thread.start("early", &spin_until, &may_end).ok()) return 1;
                const bool dropped = keep_capabilities(0).ok();
                const bool is_found = !check_capabilities(0).ok();
                may_end = true;
                thread.join();
                return dropped && is_found ? 0 : 2;
              }));
}

// ---- The watchdog ----

TEST(Init, AWatchdogThatIsNotThereIsAnErrorIfRequired) {
  WatchdogSettings settings;
  settings.enabled = true;
  settings.device = "/dev/bp_no_watchdog";
  Watchdog watchdog;
  watchdog.create(settings);
  STRCMP_CONTAINS("starting the watchdog /dev/bp_no_watchdog with 30 s: No such file or directory; "
                  "name its driver",
                  text_of(watchdog.start().error()).c_str());
  settings.required = false;
  watchdog.create(settings);
  StderrCapture capture;
  CHECK(watchdog.start().ok());
  watchdog.feed();
  watchdog.stop();
  STRCMP_CONTAINS("No such file or directory", capture.finish().c_str());
}

TEST(Init, WhatIsNoWatchdogIsRefused) {
  WatchdogSettings settings;
  settings.enabled = true;
  settings.device = "/dev/null";
  Watchdog watchdog;
  watchdog.create(settings);
  STRCMP_CONTAINS("Inappropriate ioctl", text_of(watchdog.start().error()).c_str());
}

TEST(Init, NoWatchdogIsWantedByDefault) {
  Watchdog watchdog;
  watchdog.create(parsed(file_with({})).watchdog);
  CHECK(watchdog.start().ok());
  watchdog.feed();
}
