#include "apps/init/kernel_command_line.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(KernelCommandLine){};

TEST(KernelCommandLine, FindsAValueByItsWholeName) {
  const char* line = "quiet bedplate.drill=hang xbedplate.drill=no panic=10\n";
  STRCMP_EQUAL("hang", command_line_value(line, "bedplate.drill")->c_str());
  STRCMP_EQUAL("10", command_line_value(line, "panic")->c_str());
}

TEST(KernelCommandLine, FindsNothing) {
  CHECK(!command_line_value("", "panic"));
  CHECK(!command_line_value("panic", "panic"));
  CHECK(!command_line_value("panic2=1 apanic=1", "panic"));
}

TEST(KernelCommandLine, TheLastOneCounts) {
  STRCMP_EQUAL("2", command_line_value("a=1 a=2", "a")->c_str());
  STRCMP_EQUAL("", command_line_value("a=1 a=", "a")->c_str());
}

TEST(KernelCommandLine, QuotesHoldBlanksTogether) {
  const char* line = "one=\"a b=c\" \"two=d e\" b=f";
  STRCMP_EQUAL("a b=c", command_line_value(line, "one")->c_str());
  STRCMP_EQUAL("d e", command_line_value(line, "two")->c_str());
  STRCMP_EQUAL("f", command_line_value(line, "b")->c_str());
}

TEST(KernelCommandLine, ParametersOfAModuleComeInTheirOrder) {
  const char* line = "ramoops.mem_size=0x10 quiet ramoops.ecc other.mem_size=1 ramoops.mem_size=2";
  STRCMP_EQUAL("mem_size=0x10 ecc mem_size=2", module_parameters(line, "ramoops").c_str());
  STRCMP_EQUAL("", module_parameters(line, "ramoop").c_str());
  STRCMP_EQUAL("\"dyndbg=file a +p\" debug=1",
               module_parameters("\"usb.dyndbg=file a +p\" usb.debug=1", "usb").c_str());
}

TEST(KernelCommandLine, ModulesAreCalledWithEitherLine) {
  STRCMP_EQUAL("a=1 b=2", module_parameters("virtio-net.a=1 virtio_net.b=2", "virtio_net").c_str());
}

TEST(KernelCommandLine, AValueWithADotIsNoParameter) {
  STRCMP_EQUAL("", module_parameters("ip=ramoops.a=1 root=ramoops.b", "ramoops").c_str());
}
