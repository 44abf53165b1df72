// A program whose service answers on every shard, and on the first asks the peers that [places]
// names: `places run CONFIG`. Alternatively it joins and does the same: `places join SOCKET NAME
// [PEER...]`. Each conversation prints a line (conversation.h).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "tests/places/conversation.h"
#include "transport/messages/joined_process.h"

using namespace bedplate;
namespace {

constexpr uint64_t kAreaBytes = 8192;
constexpr uint64_t kLentBytes = 100'000;
constexpr AmId kReply = 7;  // of the range that programs number themselves

std::span<std::byte> heap_memory(uint64_t bytes) {
  return {static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), bytes};
}

// The peers of a list, one after the other.
class Asker {
 public:
  void create(Messenger& messenger, std::vector<std::string> peers, std::span<std::byte> lent) {
    messenger_ = &messenger;
    peers_ = std::move(peers);
    lent_ = lent;
  }
  uint32_t poll() {
    if (conversation_ == nullptr) {
      if (next_ == peers_.size()) return 0;
      conversation_ = std::make_unique<Conversation>(*messenger_, peers_[next_++], kReply, lent_);
    }
    const uint32_t moved = conversation_->poll();
    if (!conversation_->is_over()) return moved;
    std::printf("%s\n", conversation_->report().c_str());
    std::fflush(stdout);
    conversation_.reset();
    return 1;
  }
  bool is_over() const { return conversation_ == nullptr && next_ == peers_.size(); }

 private:
  Messenger* messenger_ = nullptr;
  std::vector<std::string> peers_;
  std::span<std::byte> lent_;
  size_t next_ = 0;
  std::unique_ptr<Conversation> conversation_;
};

class Places final : public Service {
 public:
  const char* name() const noexcept override { return "places"; }
  void describe(ConfigurationTable& table) override {
    table.texts("ask", ConfigurationKey::Type::kOwners, &ask_, 16).help("Peers.");
    table.shard("shard", &shard_).help("Where it asks.");
  }
  Result<void> plan(ServicePlan& plan) override {
    const auto count = static_cast<uint32_t>(plan.configuration().shards.size());
    for (uint32_t shard = 0; shard < count; ++shard) {
      plan.messages(shard);
      plan.sources(shard, 1);
      plan.timers(shard, 1);
    }
    for (const char* message : Answerer::kNames) plan.message(message);
    plan.segment("places", {{"places:areas", count * kAreaBytes}}, plan.placement(0));
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    auto areas = context.carve("places:areas");
    BP_TRY(areas);
    AmId numbers[3];
    for (size_t i = 0; i < 3; ++i) {
      auto number = context.message(Answerer::kNames[i]);
      BP_TRY(number);
      numbers[i] = number.value();
    }
    for (uint32_t shard = 0; shard < context.shard_count(); ++shard) {
      auto messenger = context.messenger(shard);
      BP_TRY(messenger);
      parts_.push_back(std::make_unique<Part>());
      Part& part = *parts_.back();
      part.answerer.create(*messenger.value(), numbers,
                           areas.value().subspan(shard * kAreaBytes, kAreaBytes));
      if (shard == shard_) {
        part.asker.create(*messenger.value(), ask_, heap_memory(kLentBytes));
        for (const std::string& peer : ask_) say_whether_known(*messenger.value(), peer);
      }
      part.loop = &context.loop(shard);
      BP_TRY(context.add_source(shard, part, 16));
    }
    return {};
  }
  void start(uint32_t shard) noexcept override { parts_[shard]->look(); }

 private:
  // Called in create(): then a shard is known, and no process has joined.
  static void say_whether_known(Messenger& messenger, const std::string& peer) {
    auto endpoint = messenger.connect({.name = peer.c_str()});
    std::printf("in create %s: %s\n", peer.c_str(),
                endpoint.ok() ? "known" : endpoint.error().answer);
    std::fflush(stdout);
  }

  // The two sides on one shard. A timer looks again for peers that are not there yet.
  struct Part final : PollSource {
    uint32_t poll(uint32_t) noexcept override { return answerer.poll() + asker.poll(); }
    void look() noexcept {
      timer.context = this;
      timer.expired = [](void* self) noexcept { static_cast<Part*>(self)->look(); };
      if (!asker.is_over()) loop->timers().arm(timer, monotonic_ns() + 10 * kNsPerMs);
    }

    Answerer answerer;
    Asker asker;
    EventLoop* loop = nullptr;
    Timer timer;
  };

  std::vector<std::string> ask_;
  uint32_t shard_ = 0;
  std::vector<std::unique_ptr<Part>> parts_;
};

// Runs until the owner has gone.
int run_joined(int count, char** words) {
  JoinedProcessOptions options;
  options.join.socket_path = words[2];
  options.join.process = words[3];
  options.join.timeout_ns = 60 * kNsPerSecond;
  static bool is_over = false;
  options.on_peer = {[](void*, const PeerEvent& event) noexcept {
                       is_over = is_over || event.kind == PeerEventKind::kPoolGone;
                     },
                     nullptr};
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) return log_error(joined.error()), 1;
  Messenger& messenger = joined.value()->messenger();
  static MessageNames names;
  AmId numbers[3];
  (void)names.add("another.name");  // its numbers are not the owner's
  for (size_t i = 0; i < 3; ++i) {
    numbers[i] = names.add(std::string("places.") + Answerer::kNames[i]).take();
  }
  messenger.answer_names(names);
  Answerer answerer;
  answerer.create(messenger, numbers, heap_memory(kAreaBytes));
  Asker asker;
  asker.create(messenger, {words + 4, words + count}, heap_memory(kLentBytes));
  while (!is_over) {
    if (messenger.poll(16) + answerer.poll() + asker.poll() == 0) messenger.wait(10 * kNsPerMs);
  }
  return 0;
}

}  // namespace
int main(int count, char** words) {
  if (count > 3 && std::strcmp(words[1], "join") == 0) return run_joined(count, words);
  static Places places;
  return run_program(count, words, {&places});
}
