// Replays a capture of broken packets, which broken_packets.py writes. The stack drops each packet
// for the cause that the script gives.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include <unistd.h>

#include "tests/support/skip.h"
#include "tests/transport/dpdk/net/net_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::End;
using made_up::Rig;

namespace {

std::string contents(const std::string& path) {
  std::string text;
  if (FILE* file = std::fopen(path.c_str(), "rb")) {
    char piece[4096];
    for (size_t got; (got = std::fread(piece, 1, sizeof piece, file)) > 0;) text.append(piece, got);
    std::fclose(file);
  }
  return text;
}

uint32_t little(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

TEST_GROUP(BrokenPackets) {
  Rig rig;
  std::unique_ptr<End> end, six;
  std::string folder = "/tmp/bedplate-packets-XXXXXX";

  void setup() override { CHECK(mkdtemp(folder.data()) != nullptr); }
  void teardown() override {
    end.reset();
    six.reset();
    rig.stack.reset();
    std::remove((folder + "/capture").c_str());
    std::remove((folder + "/causes").c_str());
    rmdir(folder.c_str());
  }
};

TEST(BrokenPackets, AreDroppedForTheirCauses) {
  const char* const script = "tests/transport/dpdk/net/broken_packets.py";
  if (access(script, R_OK) != 0) BP_SKIP("it runs in the source folder alone");
  const std::string command =
      std::string("/usr/bin/python3 ") + script + " " + folder + "/capture " + folder + "/causes";
  LONGS_EQUAL(0, std::system(command.c_str()));
  std::map<std::string, uint64_t> expected;
  const std::string causes = contents(folder + "/causes");
  for (size_t at = 0; at < causes.size();) {
    const size_t line_end = causes.find('\n', at);
    const size_t space = causes.rfind(' ', line_end);
    expected[causes.substr(at, space - at)] = std::strtoull(causes.c_str() + space, nullptr, 10);
    at = line_end + 1;
  }
  rig.start();
  end = std::make_unique<End>(*rig.stack);
  six = std::make_unique<End>(*rig.stack);
  CHECK(end->open("0.0.0.0:5004").ok());
  CHECK(six->open("[::]:5004").ok());
  const std::string capture = contents(folder + "/capture");
  CHECK(capture.size() > 24);
  for (size_t at = 24; at + 16 <= capture.size();) {
    const uint32_t count = little(capture, at + 8);
    const uint64_t before = rig.dropped();
    rig.receive(Bytes(capture.begin() + static_cast<long>(at + 16),
                      capture.begin() + static_cast<long>(at + 16 + count)));
    CHECK(rig.dropped() <= before + 1);
    at += 16 + count;
  }
  for (uint32_t i = 1; i < kDropCount; ++i) {
    const char* name = to_text(static_cast<PacketDrop>(i));
    UNSIGNED_LONGS_EQUAL_TEXT(expected[name], rig.dropped(static_cast<PacketDrop>(i)), name);
  }
  LONGS_EQUAL(expected["none"], end->all.size() + six->all.size());
  CHECK(rig.port.pool.is_whole());
}
