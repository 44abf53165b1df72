// The modules that an image's configuration needs, and the errors of modules that do not load.
#include "apps/init/modules.h"

#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include "tests/apps/configuration/configuration_support.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

namespace {

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

// A directory with files, removed at the end of the test.
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

}  // namespace

TEST_GROUP(Modules){};

// Returns the modules that `configuration` and `services` need. `configuration` does not name the
// services.
static std::vector<std::string> needed(const Configuration& configuration,
                                       std::vector<ServiceNeeds> services = {}) {
  AppliancePlan plan;
  plan.services = std::move(services);
  return needed_modules(configuration, plan);
}

TEST(Modules, AreThoseThatTablesAskFor) {
  LONGS_EQUAL(0, needed(parsed(file_with({}))).size());
  const auto c = parsed(
      file_with({}) +
      "[[network]]\ninterface = \"eth0\"\n[[network]]\ninterface = \"eth1\"\ndriver = \"e1000e\"\n"
      "[[network]]\ninterface = \"eth2\"\n[watchdog]\ndriver = \"softdog\"\n"
      "[crash]\ndrivers = [\"ramoops\", \"e1000e\"]\n");
  const std::vector<std::string> expected = {"virtio_net", "e1000e", "softdog", "ramoops"};
  CHECK(needed(c) == expected);
}

TEST(Modules, VerbsNeedTheirModules) {
  const std::string verbs = file_with({}) + "[verbs]\n";
  using Names = std::vector<std::string>;
  CHECK(needed(parsed(verbs)) == Names{"ib_uverbs"});
  const Names soft = {"ib_uverbs", "rdma_ucm", "rdma_rxe"};
  CHECK(needed(parsed(verbs + "connect = \"rdma_cm\"\ndriver = \"rdma_rxe\"\n"
                              "interface = \"eth0\"\n")) == soft);
}

TEST(Modules, DevicesThatServicesDriveNeedVfio) {
  ServiceNeeds service;
  service.vfio_devices = {"0000:00:05.0", "0000:00:06.0"};
  const std::vector<std::string> expected = {"vfio_iommu_type1", "vfio_pci"};
  CHECK(needed(parsed(file_with({})), {service, service}) == expected);
}

TEST(Modules, AModuleThatIsNotThereIsNamed) {
  Directory directory;
  STRCMP_CONTAINS("/order", text_of(load_modules(directory.path(), "", "").error()).c_str());
  directory.add("order", "one.ko\ntwo.ko \n");
  STRCMP_CONTAINS("/order: line 2, column 7: there is a blank; build the image again",
                  text_of(load_modules(directory.path(), "", "").error()).c_str());
  directory.add("order", "one.ko\n");
  const std::string text = text_of(load_modules(directory.path(), "", "two").error());
  STRCMP_CONTAINS(("loading the module " + directory.path() + "/one.ko: No such file").c_str(),
                  text.c_str());
  STRCMP_CONTAINS("build the image again", text.c_str());
}

TEST(Modules, AModuleThatIsNoneIsRefusedWithItsParameters) {
  Directory directory;
  directory.add("order", "one.ko\n");
  directory.add("one.ko", "no module");
  const auto loaded = load_modules(directory.path(), "quiet one.a=1 two.b=2", "");
  CHECK(!loaded.ok());
  STRCMP_CONTAINS("/one.ko a=1 into kernel ", text_of(loaded.error()).c_str());
}

TEST(Modules, NoModulesAreNoError) {
  Directory directory;
  directory.add("order", "");
  CHECK(load_modules(directory.path(), "", "").ok());
}

TEST(Modules, AnOptionalModuleThatDoesNotLoadIsALineInTheLog) {
  Directory directory;
  directory.add("order", "one-a.ko\n");
  directory.add("one-a.ko", "no module");
  CHECK(!load_modules(directory.path(), "", "one").ok());
  StderrCapture capture;
  CHECK(load_modules(directory.path(), "", "one_a").ok());
  STRCMP_CONTAINS("/one-a.ko into kernel ", capture.finish().c_str());
}

TEST(Modules, ThoseOfServicesAreTakenOnce) {
  ServiceNeeds service;
  service.modules = {"rbd"};
  const std::vector<std::string> expected = {"rbd"};
  CHECK(needed(parsed(file_with({})), {service, service}) == expected);
}
