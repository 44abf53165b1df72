// The rig for tests of datagram sockets over a simulated port. It checks that no buffer is lost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/dpdk/net/net_rig.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::made_up {

class PortDatagramBodies : public Utest {
 public:
  Rig rig;
  std::vector<std::unique_ptr<End>> ends;

  void teardown() override {
    ends.clear();
    rig.port.release_held();
    rig.stack.reset();
    CHECK(rig.port.pool.is_whole());
  }
  End& make(const DatagramShape& shape = {}) {
    ends.push_back(std::make_unique<End>(*rig.stack, shape));
    return *ends.back();
  }
  End& open(const std::string& local, const DatagramShape& shape = {}) {
    End& end = make(shape);
    auto opened = end.open(local);
    if (!opened.ok()) FAIL(opened.error().answer);
    return end;
  }
  int refusal(const DatagramOptions& options) {
    auto opened = make().open(options);
    CHECK(!opened.ok());
    CHECK(opened.error().cure[0] != 0);
    return opened.ok() ? 0 : static_cast<int>(opened.error().kind);
  }
};

}  // namespace bedplate::made_up
