// The first process: how it is recognised, and its errors in a machine that lacks something.
// tests/guest tests it in a complete machine.
#include "apps/init/init.h"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "apps/init/core_dump.h"
#include "tests/apps/init/fake_machine.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

bool is_init_with(std::vector<const char*> words) {
  return is_init(static_cast<int>(words.size()), const_cast<char**>(words.data()));
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

BP_PROBE(FirstProcess) {
  test::as_first_process([] {
    char name[] = "/init";
    char* words[] = {name, nullptr};
    init_main(1, words, {});
  });
}

namespace {

constexpr const char* kGood = "[appliance]\nname = \"demo\"\n[pool]\nbytes = \"256 MiB\"\n"
                              "[[shard]]\nname = \"main\"\ncpu = 0\n";

// Runs the first process. Checks that it logs `words`, and ends the machine.
void ends_with(test::FakeMachine& machine, std::initializer_list<const char*> words) {
  const test::Ended ended = machine.run("FirstProcess");
  for (const char* said : words) STRCMP_CONTAINS(said, ended.text);
  LONGS_EQUAL(test::kMachineEnded, ended.exit_code);
}

}  // namespace

TEST(Init, AKernelThatSaysNothingOfItsStartEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  std::filesystem::remove(machine.path("/proc/cmdline"));
  ends_with(machine, {"/proc/cmdline: No such file", "boot a kernel that provides its command line",
                      "the machine ends: reboot in 5 s"});
}

TEST(Init, AnUnknownDrillEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  machine.write("/proc/cmdline", "quiet bedplate.drill=fire");
  ends_with(machine, {"there is no drill \"fire\"", "the machine ends: reboot in 5 s"});
}

TEST(Init, ItsConfigurationMustBeThereAndGood) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  ends_with(machine, {"reading the configuration /bedplate.toml: No such file"});
  machine.write("/bedplate.toml", std::string(kGood) + "colour = 1\n[appliances]\n");
  ends_with(machine,
            {"unknown key \"colour\"", "unknown table \"appliances\"", "the machine ends"});
}

TEST(Init, AModuleThatIsMissingEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  machine.write("/bedplate.toml", kGood);
  machine.write("/modules/order", "virtio_net.ko\n");
  ends_with(machine,
            {"is the first process of Linux ", "loading the module /modules/virtio_net.ko"});
}

TEST(Init, AKernelWithoutSysctlEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  machine.write("/bedplate.toml", kGood);
  std::filesystem::remove(machine.path("/proc/sys/fs/nr_open"));
  ends_with(machine, {"reading /proc/sys/fs/nr_open, the maximum of open files: No such file"});
}

TEST(Init, AnApplianceThatIsRefusedEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  machine.write("/bedplate.toml", std::string(kGood) + "[crash]\naction = \"halt\"\ndelay_s = 7\n");
  ends_with(machine, {"crash records: on the console only",
                      "booting the appliance demo: refused, as reported above",
                      "the machine ends: halt in 7 s"});
}

TEST(Init, ACrashIsToldToTheKernelAndEndsTheMachine) {
  BP_SKIP_WITHOUT_MACHINE();
  test::FakeMachine machine;
  machine.write("/bedplate.toml", kGood);
  machine.write("/proc/cmdline", "bedplate.drill=boot");
  ends_with(machine, {"a drill begins, as requested", "this is a drill", "crash: signal 6 (ABRT)",
                      "crash: reboot in 5 s"});
  std::ifstream kernel_log(machine.path("/dev/kmsg"));
  const std::string told(std::istreambuf_iterator<char>(kernel_log), {});
  STRCMP_CONTAINS("crash: signal 6 (ABRT)", told.c_str());
}
