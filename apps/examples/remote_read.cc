// Two appliances over verbs: `remote_read run CONFIG` on each side, with an empty table
// [remote-read]. The side whose configuration has an export "area" answers. The other side reads
// that export, and a malloc block that the answerer lends, straight into its own heap, and ends. As
// the first process of an image (docs/image.md) it instead reads them once a second. If [verbs] has
// datagrams, the answerer also sends a datagram, which may be lost.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/peers/verbs_settings.h"
#include "apps/program/program.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "transport/verbs/channel/verbs_provider.h"

using namespace bedplate;
namespace {

enum : AmId { kAsk = 1, kDescribed, kLent, kNote };
constexpr uint64_t kShownBytes = 64;
constexpr uint64_t kLentBytes = 100'000;
constexpr char kInArea[] = "what the area holds";
constexpr char kInBlock[] = "what malloc gave";

// One of the two reads: its expected text, its target and its state.
struct Reading : Completion {
  const char* what = nullptr;
  std::string_view text = {};
  std::string into = {};
  Loan loan = {};
  bool is_in_flight = false;
  class RemoteRead* self = nullptr;
};

// The byte at `position`: the text, a NUL, and then the low byte of the position itself.
char byte_of(std::string_view text, size_t position) {
  return position < text.size()    ? text[position]
         : position == text.size() ? '\0'
                                   : static_cast<char>(position);
}
void write(std::span<std::byte> memory, std::string_view text) {
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(byte_of(text, i));
}
bool is_written(std::string_view memory, std::string_view text) {
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i] != byte_of(text, i)) return false;
  }
  return true;
}

// The shard polls it like any source; only the boot runs on another thread.
class RemoteRead final : public Service, public PollSource {
 public:
  // Whether it should have read both once, and could not.
  bool has_failed() const { return has_begun_ && !reads_on_ && area_.empty() && good_count_ != 2; }

 private:
  const char* name() const noexcept override { return "remote-read"; }

  Result<void> plan(ServicePlan& plan) override {
    const uint32_t shard = verbs_settings(plan.configuration()).shard;
    plan.sources(shard, 1);
    plan.timers(shard, 1);
    plan.messages(shard);
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    context_ = &context;
    reads_on_ = context.configuration().is_first_process;
    loop_ = &context.loop(settings().shard);
    again_.context = this;
    again_.expired = [](void* self) noexcept { static_cast<RemoteRead*>(self)->look_again(); };
    BP_TRY(context.add_source(settings().shard, *this, 1));
    BP_TRY_ASSIGN(messenger_, context.messenger(settings().shard));
    if (!context.has_peers() || settings().peers.size() != 1) {
      return error_while("looking for the peer")
          .set_answer("there is not exactly one peer")
          .set_cure("configure one [[verbs.peer]], and leave required of [verbs] true");
    }
    area_ = context.exported("area");
    write(area_, kInArea);
    messenger_->set_handler(kAsk, {[](void* self, const Message& message) noexcept {
                                     static_cast<RemoteRead*>(self)->asker_ = &message.from;
                                   },
                                   this});
    const AmHandler read = {[](void* self, const Message& message) noexcept {
                              static_cast<RemoteRead*>(self)->read(message);
                            },
                            this};
    messenger_->set_handler(kDescribed, read);
    messenger_->set_handler(kLent, read);
    messenger_->set_handler(kNote, {[](void*, const Message& message) noexcept {
                                      std::printf("a note of %zu bytes\n", message.payload.size());
                                    },
                                    nullptr});
    has_begun_ = true;
    return {};
  }

  // A later poll resends a message that cannot be sent now (kAgain): the loop polls whenever
  // something has arrived.
  uint32_t poll(uint32_t) noexcept override { return area_.empty() ? ask() : answer(); }

  uint32_t ask() noexcept {
    if (has_asked_) return 0;
    auto peer = messenger_->connect({.name = settings().peers[0].name.c_str()});
    has_asked_ = peer.ok() && peer.value()->am_send(kAsk, {}) == SendStatus::kDone;
    if (!has_asked_) return 0;
    if (reads_on_) loop_->timers().arm(again_, monotonic_ns() + kNsPerSecond);
    return 1;
  }

  // Asks again, whatever has arrived: the answer may have been lost with the connection.
  void look_again() noexcept {
    has_asked_ = readings_[0].is_in_flight || readings_[1].is_in_flight;
    if (has_asked_) loop_->timers().arm(again_, monotonic_ns() + kNsPerSecond);
  }

  uint32_t answer() noexcept {
    if (asker_ == nullptr) return 0;
    if (!has_described_) {
      auto described = asker_->expose(area_);
      if (!described.ok()) return log_error(described.error()), forget_asker();
      const auto status =
          asker_->am_send(kDescribed, std::as_bytes(std::span(&described.value(), 1)));
      if (status == SendStatus::kAgain) return 0;
      has_described_ = true;
      if (VerbsProvider* datagrams = context_->peer_datagrams()) {
        (void)datagrams->send_datagram(*asker_, kNote, std::as_bytes(std::span("a loan follows")));
      }
    }
    auto* block = static_cast<std::byte*>(std::malloc(kLentBytes));
    if (block == nullptr) return forget_asker();
    write({block, kLentBytes}, kInBlock);
    // Without a completion the block is freed when it comes back; a block that was not accepted is
    // still ours.
    const auto status = asker_->am_send_loan(kLent, {}, {block, kLentBytes}, nullptr);
    if (status != SendStatus::kPending && status != SendStatus::kDone) std::free(block);
    return status == SendStatus::kAgain ? 0 : forget_asker();
  }
  uint32_t forget_asker() noexcept {
    asker_ = nullptr;
    has_described_ = false;
    return 1;
  }

  void read(const Message& message) noexcept {
    const bool is_lent = message.id == kLent;
    Reading& reading = readings_[is_lent];
    if (reading.is_in_flight) {  // it was requested twice
      if (is_lent) messenger_->release(message.loan);
      return;
    }
    RemoteMemory from = message.loan.remote;
    if (message.id == kDescribed) {
      if (message.payload.size() != sizeof from) return;
      std::memcpy(&from, message.payload.data(), sizeof from);
      from = from.part(0, kShownBytes);
    }
    reading.what = is_lent ? "the loan" : "the export";
    reading.text = is_lent ? kInBlock : kInArea;
    reading.loan = message.loan;
    reading.self = this;
    reading.into.resize(from.bytes);
    reading.call = [](Completion& self, Outcome outcome) noexcept {
      auto& ended = static_cast<Reading&>(self);
      ended.self->end(ended, outcome);
    };
    reading.is_in_flight = true;
    const SendStatus status =
        message.from.get(std::as_writable_bytes(std::span(reading.into)), from, &reading);
    if (status == SendStatus::kPending) return;
    end(reading, status == SendStatus::kDone ? Outcome::kDone : Outcome::kNotDone);
  }

  void end(Reading& reading, Outcome outcome) noexcept {
    const bool is_right = is_written(reading.into, reading.text);
    const bool is_good = outcome == Outcome::kDone && is_right;
    std::printf("%s: %zu bytes, %s: %s\n", reading.what, reading.into.size(), to_text(outcome),
                is_right ? reading.into.c_str() : "not what was written");
    std::fflush(stdout);
    reading.is_in_flight = false;
    messenger_->release(reading.loan);
    if (is_good && ++good_count_ == 2 && !reads_on_) kill(getpid(), SIGTERM);
  }

  const VerbsSettings& settings() const { return verbs_settings(context_->configuration()); }

  bool reads_on_ = false;
  bool has_begun_ = false;
  ServiceContext* context_ = nullptr;
  Messenger* messenger_ = nullptr;
  EventLoop* loop_ = nullptr;
  std::span<std::byte> area_;
  Reading readings_[2];
  Timer again_;
  bool has_asked_ = false;
  Endpoint* asker_ = nullptr;  // the peer that waits for an answer
  bool has_described_ = false;
  int good_count_ = 0;
};

}  // namespace
int main(int count, char** words) {
  static RemoteRead example;
  const int code = run_program(count, words, {&example});
  return code == 0 && example.has_failed() ? 3 : code;
}
