// Soft RoCE on an interface: the netlink message, and the error for an interface that does not
// exist. The guest tests use a real interface.
#include "apps/init/rdma_link.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr const char* kNoInterface = "bp_no_interface";

VerbsSettings on_no_interface(bool required) {
  VerbsSettings settings;
  settings.enabled = true;
  settings.required = required;
  settings.interface = kNoInterface;
  return settings;
}

}  // namespace

TEST_GROUP(RdmaLink){};

TEST(RdmaLink, MessageHasDeviceKindAndInterface) {
  const NetlinkMessage message = soft_roce_message("rxe0", "eth0");
  const std::string_view bytes(reinterpret_cast<const char*>(&message.header()),
                               message.header().nlmsg_len);
  for (const char* word : {"rxe0", "rxe", "eth0"}) {
    CHECK_TEXT(bytes.find(std::string_view(word, std::strlen(word) + 1)) != bytes.npos, word);
  }
}

TEST(RdmaLink, WithoutVerbsNothingIsDone) { CHECK(bring_verbs_up({}).ok()); }

TEST(RdmaLink, WhereNoneIsRequiredItIsALineInTheLog) {
  test::StderrCapture capture;
  CHECK(bring_verbs_up(on_no_interface(false)).ok());
  CHECK(!capture.finish().empty());
  CHECK(!bring_verbs_up(on_no_interface(true)).ok());
}
