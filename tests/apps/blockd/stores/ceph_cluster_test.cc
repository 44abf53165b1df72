// Reads keys from keyrings, and waits for monitors that answer or stay silent.
#include "apps/blockd/stores/ceph_cluster.h"

#include <sys/stat.h>
#include <unistd.h>

#include "platform/clock.h"
#include "tests/apps/blockd/stores/fake_monitor.h"
#include "tests/support/fake_root.h"
#include "tests/support/progress_news.h"
#include "tests/support/refusing_port.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::FakeMonitor;
using test::kMonitorBanner;

namespace {

constexpr char kKey[] = "AQBSaWduIG9mIGEgdGVzdCwgbm8gc2VjcmV0IQ==";

}  // namespace

TEST_GROUP(CephCluster) {
  test::FakeRoot root;
  char text[1024];

  std::string keyring(const std::string& content, mode_t mode = 0600) {
    root.write("/keyring", content);
    const std::string path = root.path() + "/keyring";
    LONGS_EQUAL(0, chmod(path.c_str(), mode));
    return path;
  }
  std::string key_in(const std::string& content) {
    auto key = read_ceph_key(keyring(content), "bed");
    return key.ok() ? key.value() : said(key.error());
  }
  static SocketAddress at(const test::RefusingPort& port) {
    return test::address_of("tcp:127.0.0.1:" + std::to_string(port.number()));
  }
  std::string said(const Error& error) { return format_error(error, text, sizeof text); }
  std::string problem(const std::vector<SocketAddress>& monitors, uint64_t timeout_ns) {
    const auto reached = CephMonitors().reach(monitors, timeout_ns);
    return reached.ok() ? "" : said(reached.error());
  }
};

TEST(CephCluster, TheKeyIsThatOfTheUser) {
  const std::string key = kKey;
  STRCMP_EQUAL(kKey, key_in("[client.bed]\n\tkey = " + key + "\n").c_str());
  STRCMP_EQUAL(kKey, key_in("[client.bed]\nkey=" + key).c_str());
  STRCMP_EQUAL(kKey, key_in("# of all\n[client.bedrock]\n\tkey = AAAA\n[mon.]\nkey = BBBB\n"
                            "[client.bed]\n; mine\n\tauid = 0\r\n\tkey = " +
                            key + "\r\n\tcaps mon = \"profile rbd\"\n[client.z]\nkey = CCCC\n")
                         .c_str());
}

TEST(CephCluster, AKeyringWithoutTheKeyIsRefusedWithItsCure) {
  STRCMP_CONTAINS("it has no [client.bed]; name another user, or add this one",
                  key_in("[client.other]\nkey = AAAA\n").c_str());
  STRCMP_CONTAINS("it has no [client.bed]", key_in("").c_str());
  STRCMP_CONTAINS("its section has no \"key =\"; write it again: ceph auth get client.bed",
                  key_in("[client.bed]\ncaps = 1\n[client.other]\nkey = AAAA\n").c_str());
  // For the kernel, a comma ends this option and begins another.
  STRCMP_CONTAINS("its key is not base64", key_in("[client.bed]\nkey = AAAA,ro\n").c_str());
  STRCMP_CONTAINS("its key is not base64", key_in("[client.bed]\nkey =\n").c_str());
  const auto none = read_ceph_key(root.path() + "/none", "bed");
  CHECK(!none.ok());
  STRCMP_CONTAINS(("reading the key of client.bed in " + root.path() +
                   "/none: No such file or directory; create it with ceph auth get client.bed -o")
                      .c_str(),
                  said(none.error()).c_str());
}

TEST(CephCluster, AKeyringThatOthersMayReadIsRefused) {
  const std::string content = std::string("[client.bed]\nkey = ") + kKey + "\n";
  for (const mode_t mode : {0604U, 0660U, 0602U}) {
    const std::string path = keyring(content, mode);
    const auto key = read_ceph_key(path, "bed");
    CHECK(!key.ok());
    STRCMP_CONTAINS(("; chmod 600 " + path).c_str(), said(key.error()).c_str());
  }
  CHECK(read_ceph_key(keyring(content, 0400), "bed").ok());
  const auto directory = read_ceph_key(root.path(), "bed");
  STRCMP_CONTAINS("it is not a regular file", said(directory.error()).c_str());
}

TEST(CephCluster, OneMonitorThatAnswersIsEnough) {
  const FakeMonitor good(kMonitorBanner), silent("");
  STRCMP_EQUAL("", problem({good.address()}, kNsPerSecond * 60).c_str());
  STRCMP_EQUAL("", problem({silent.address(), good.address()}, kNsPerSecond * 60).c_str());
}

TEST(CephCluster, MonitorsThatDoNotAnswerAreGivenUp) {
  const FakeMonitor silent("");
  const std::string address = ceph_monitor_list({silent.address()});
  STRCMP_EQUAL(("asking the Ceph monitors " + address +
                ": none answered within 1 s; check that they run and can be reached from here "
                "(ceph -s), and that these are their v1 addresses (ceph mon dump)")
                   .c_str(),
               problem({silent.address()}, kNsPerSecond).c_str());
  const test::RefusingPort nobodys(SOCK_STREAM);
  STRCMP_CONTAINS(": Connection refused; check that they run",
                  problem({at(nobodys)}, kNsPerSecond * 60).c_str());
}

TEST(CephCluster, WaitingForAMonitorSaysSo) {
  const FakeMonitor silent("");
  const test::ProgressNews news;
  CHECK(!problem({silent.address()}, kNsPerSecond).empty());
  CHECK(news.count_of("waiting for a Ceph monitor: for ", ", 1 s at most") > 1);
  for (const uint64_t patience_ns : news.patiences_ns) CHECK(patience_ns > Progress::kPieceNsMax);
}

// The error is remembered: otherwise each image of the cluster would wait for the timeout in turn.
TEST(CephCluster, MonitorsThatDoNotAnswerAreAskedAgainByWhatMayWaitLongerAlone) {
  const test::RefusingPort nobodys(SOCK_STREAM);
  CephMonitors monitors;
  CHECK(!monitors.reach({at(nobodys)}, kNsPerSecond * 60).ok());
  const FakeMonitor good(kMonitorBanner);
  const auto same = monitors.reach({good.address()}, kNsPerSecond * 60);
  STRCMP_CONTAINS("Connection refused", same.ok() ? "" : same.error().answer);
  CHECK(monitors.reach({good.address()}, kNsPerSecond * 61).ok());
}

TEST(CephCluster, WhatIsNoMonitorIsSaid) {
  const FakeMonitor mail("220 mail.example ESMTP"), newer("ceph v2\nmore");
  STRCMP_CONTAINS("the answer is not from a monitor",
                  problem({mail.address()}, kNsPerSecond * 60).c_str());
  STRCMP_CONTAINS("a monitor speaks protocol v2 there, but the kernel's client needs v1",
                  problem({newer.address()}, kNsPerSecond * 60).c_str());
}

TEST(CephCluster, MonitorsAreListedAsTheKernelReadsThem) {
  STRCMP_EQUAL("10.0.0.1:6789,[fd00::1]:6790",
               ceph_monitor_list(
                   {test::address_of("tcp:10.0.0.1:6789"), test::address_of("tcp:[fd00::1]:6790")})
                   .c_str());
}
