// An appliance that echoes datagrams: a service on a port's network, or on the kernel's. The bytes
// are sent from their receive buffer. For tests/system/ports_test.py.
#include <memory>
#include <string>
#include <string_view>

#include "apps/boot/service_context.h"
#include "apps/ports/port_service.h"
#include "apps/program/program.h"
#include "apps/services/service_plan.h"
#include "tests/apps/ports/port_witness.h"
#include "tests/system/port_lender.h"

namespace {

using namespace bedplate;

class Echo final : public Service {
 public:
  const char* name() const noexcept override { return "echo"; }
  void describe(ConfigurationTable& table) override {
    table.text("network", &network_, 0, 16).help("A port; or none: the kernel.");
    table.text("local", &local_, 1, 64).required().help("Its address.");
    table.text("group", &group_, 0, 64).help("What it joins.");
    table.text("answer_to", &answer_to_, 0, 64)
        .help("Where answers go; or none: where it came from.");
    table.text("answer_by", &answer_by_, 0, 16).help("A port; or none: by that it came from.");
    table.shard("shard", &shard_).help("Where it is.");
  }
  Result<void> plan(ServicePlan& plan) override {
    plan.datagram_socket(shard_, "echo", {.buffer_count = 256, .buffer_bytes = 2048}, network_);
    if (!answer_by_.empty()) plan.datagram_socket(shard_, "answers", {}, answer_by_);
    plan.counters<test::WitnessCounters>("witness");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    auto socket = context.datagram_socket("echo");
    BP_TRY(socket);
    socket_ = socket.value();
    auto local = parse_datagram_address(local_);
    BP_TRY(local);
    if (!answer_to_.empty()) {
      auto answers = parse_datagram_address(answer_to_);
      BP_TRY(answers);
      answers_ = answers.value();
    }
    DatagramOptions options;
    options.local = local.value();
    options.owner.received = [](void* self, std::span<ReceivedDatagram> datagrams) noexcept {
      static_cast<Echo*>(self)->received(datagrams);
    };
    options.owner.context = this;
    BP_TRY(socket_->open(options));
    BP_TRY(open_answers(context));
    return group_.empty() ? Result<void>{} : socket_->join(*parse_ip_address(group_));
  }
  void start(uint32_t shard) noexcept override {
    if (shard != shard_) return;
    (void)socket_->start();
    if (answers_socket_ != socket_) (void)answers_socket_->start();
  }

 private:
  Result<void> open_answers(ServiceContext& context) {
    auto counters = context.counters<test::WitnessCounters>("witness");
    BP_TRY(counters);
    if (!network_.empty()) test::witness_ports(*counters.value());
    answers_socket_ = socket_;
    if (answer_by_.empty()) return {};
    auto answers = context.datagram_socket("answers");
    BP_TRY(answers);
    answers_socket_ = answers.value();
    DatagramOptions options;
    options.local = parse_datagram_address("0.0.0.0:0").value();
    options.owner.received = [](void*, std::span<ReceivedDatagram>) noexcept {};
    return answers_socket_->open(options);
  }
  void received(std::span<ReceivedDatagram> datagrams) noexcept {
    for (ReceivedDatagram& one : datagrams) {
      OutgoingDatagram back;
      back.bytes = one.bytes;
      back.byte_count = one.byte_count;
      back.to = answer_to_.empty() ? one.from : answers_;
      (void)answers_socket_->send_batch({&back, 1});
    }
  }

  std::string network_;
  std::string local_;
  std::string group_;
  std::string answer_to_;
  std::string answer_by_;
  DatagramAddress answers_;
  uint32_t shard_ = 0;
  DatagramSocket* socket_ = nullptr;
  DatagramSocket* answers_socket_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::string_view(words[1]) == "read") {
    return test::run_reader(words[2], words[3]);
  }
  static DpdkService dpdk;
  static PortService ports(dpdk);
  static Echo echo;
  const std::unique_ptr<Service> lender = test::make_lender();
  return run_program(count, words, {&dpdk, &ports, &echo, lender.get()});
}
