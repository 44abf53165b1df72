// Two appliances over verbs: `remote_read CONFIG` at each side. The one whose configuration has an
// export "area" answers; the other reads that export, and a block of the answerer's malloc that is
// lent to it, straight into its own heap, and ends.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <unistd.h>

#include "apps/boot/appliance.h"

using namespace bedplate;
namespace {

enum : AmId { kAsk = 1, kDescribed, kLent };
constexpr uint64_t kShownBytes = 64;
constexpr uint64_t kLentBytes = 100'000;

// One of what is read: where it goes, and what becomes of it.
struct Reading : Completion {
  const char* what = nullptr;
  std::string into = {};
  Loan loan = {};
  class RemoteRead* self = nullptr;
};

// Polled by the shard like everything else; nothing here runs on another thread but the boot.
class RemoteRead final : public Supervisor, public PollSource {
 public:
  explicit RemoteRead(Configuration configuration)
      : shard_(configuration.verbs.shard), peers_(configuration.verbs.peers),
        appliance_(std::move(configuration), this) {}

  Appliance& appliance() { return appliance_; }
  bool is_good() const { return ended_ == 2; }

 private:
  void loop_made(uint32_t index, EventLoop& loop) override {
    if (index == shard_) loop.add_source(*this, 1);
  }

  Result<void> about_to_serve() override {
    Messenger* messenger = appliance_.peers();
    if (messenger == nullptr || peers_.size() != 1) {
      Error error;
      return error.set_doing("looking for the peer").set_answer("there is not exactly one")
          .set_cure("write one [[verbs.peer]], and let [verbs] be required");
    }
    area_ = appliance_.exported("area");
    if (!area_.empty()) std::strcpy(reinterpret_cast<char*>(area_.data()), "what the area holds");
    messenger->set_handler(kAsk, {[](void* self, const Message& message) noexcept {
                                    static_cast<RemoteRead*>(self)->answer(message.from);
                                  }, this});
    const AmHandler read = {[](void* self, const Message& message) noexcept {
                              static_cast<RemoteRead*>(self)->read(message);
                            }, this};
    messenger->set_handler(kDescribed, read);
    messenger->set_handler(kLent, read);
    return {};
  }

  // Until the connection is there sends say kAgain; the loop is woken when it is.
  uint32_t poll(uint32_t) noexcept override {
    if (has_asked_ || !area_.empty()) return 0;
    auto peer = appliance_.peers()->connect({.name = peers_[0].name.c_str()});
    has_asked_ = peer.ok() && peer.value()->am_send(kAsk, {}) == SendStatus::kDone;
    return has_asked_ ? 1 : 0;
  }

  void answer(Endpoint& peer) noexcept {
    auto described = peer.expose(area_);
    if (!described.ok()) return log_error(described.error());
    (void)peer.am_send(kDescribed, std::as_bytes(std::span(&described.value(), 1)));
    auto* block = static_cast<std::byte*>(std::malloc(kLentBytes));
    std::strcpy(reinterpret_cast<char*>(block), "what malloc gave");
    // It is freed when it comes back.
    if (peer.am_send_loan(kLent, {}, {block, kLentBytes}, nullptr) == SendStatus::kPending) return;
    std::free(block);
  }

  void read(const Message& message) noexcept {
    Reading& reading = readings_[message.id == kLent];
    RemoteMemory from = message.loan.remote;
    if (message.id == kDescribed) {
      if (message.payload.size() != sizeof from) return;
      std::memcpy(&from, message.payload.data(), sizeof from);
      from = from.part(0, kShownBytes);
    }
    reading.what = message.id == kLent ? "the loan" : "the export";
    reading.loan = message.loan;
    reading.self = this;
    reading.into.resize(from.bytes);
    reading.call = [](Completion& self, Outcome outcome) noexcept {
      auto& ended = static_cast<Reading&>(self);
      ended.self->end(ended, outcome);
    };
    (void)message.from.get(std::as_writable_bytes(std::span(reading.into)), from, &reading);
  }

  void end(Reading& reading, Outcome outcome) noexcept {
    std::printf("%s: %zu bytes, %s: %s\n", reading.what, reading.into.size(), to_text(outcome),
                reading.into.c_str());
    std::fflush(stdout);
    if (reading.loan.is_there()) appliance_.peers()->release(reading.loan);
    if (outcome == Outcome::kDone && ++ended_ == 2) kill(getpid(), SIGTERM);
  }

  uint32_t shard_;
  std::vector<VerbsPeerSettings> peers_;
  std::span<std::byte> area_;
  Reading readings_[2];
  bool has_asked_ = false;
  int ended_ = 0;
  Appliance appliance_;  // its shards end before what they use
};

}  // namespace
int main(int count, char** words) {
  if (count != 2) return std::fputs("usage: remote_read CONFIG\n", stderr), 2;
  auto configuration = load_configuration(words[1]);
  if (!configuration.ok()) return log_error(configuration.error()), 2;
  static RemoteRead example(configuration.take());
  if (!example.appliance().boot()) return 1;
  std::puts("remote_read: ready");
  std::fflush(stdout);
  example.appliance().serve_until_signal();
  return example.is_good() ? 0 : 3;
}
