// Measures kvd by message against a service that only answers (kvd_bench.py).
//
//     kvd_messages serve run CONFIG   kvd, and an [echo] on its shard
//     kvd_messages ask SOCKET KEYS VALUE_BYTES SLICES
//
// `ask` joins as "asker" and prints, per slice, the nanoseconds from a question to its answer: for
// bare messages as long as kvd's, and for kvd's own. One question is in flight at a time. Keys are
// those of kvd_client.c, at random.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/kvd/kv_service.h"
#include "apps/program/program.h"
#include "transport/messages/joined_process.h"

using namespace bedplate;
namespace {

constexpr AmId kAnswer = 1;
constexpr size_t kTagBytes = 4;
constexpr size_t kHeadBytes = kTagBytes + 1;  // of questions: the answer's number, and the tag
constexpr size_t kKeyBytes = 10;
constexpr size_t kSliceQuestions = 20'000;

// Answers a question with its tag, a byte, and the configured number of bytes.
class Echo final : public Service {
  const char* name() const noexcept override { return "echo"; }
  void describe(ConfigurationTable& table) override {
    table.integer("answer_bytes", &answer_bytes_, 1, sizeof bytes_).help("Of an answer's value.");
  }
  Result<void> plan(ServicePlan& plan) override {
    plan.messages(0);
    plan.message("ping");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(const auto messenger, context.messenger(0));
    BP_TRY_ASSIGN(const auto ping, context.message("ping"));
    messenger->set_handler(ping, {[](void* self, const Message& message) noexcept {
                                    static_cast<Echo*>(self)->answer(message);
                                  },
                                  this});
    return {};
  }
  void answer(const Message& message) noexcept {
    if (message.payload.size() < kHeadBytes) return;
    std::memcpy(bytes_, message.payload.data() + 1, kTagBytes);
    const auto reply = std::as_bytes(std::span(bytes_, kHeadBytes + answer_bytes_));
    (void)message.from.am_send(static_cast<AmId>(message.payload[0]), reply);
  }

  uint32_t answer_bytes_ = 100;
  char bytes_[1024] = {};
};

struct GetNumber : NumberQuery {
  bool is_told = false;
  std::optional<AmId> number;
};

int fail(const char* what) { return std::fprintf(stderr, "kvd_messages: %s\n", what), 1; }

uint64_t answered_count = 0;
size_t wrong_count = 0;
size_t answer_bytes = 0;

void take(void*, const Message& message) noexcept {
  ++answered_count;
  if (message.payload.size() != answer_bytes || message.payload[kTagBytes] != std::byte{0}) {
    ++wrong_count;
  }
}

struct Question {
  char bytes[kHeadBytes + 16] = {kAnswer};
};

double time_slice_ns(Messenger& messenger, Endpoint& to, AmId number,
                     const std::vector<Question>& questions) {
  const uint64_t begin_ns = monotonic_ns();
  for (const Question& question : questions) {
    const auto payload = std::as_bytes(std::span(question.bytes, kHeadBytes + kKeyBytes));
    const uint64_t before = answered_count;
    while (to.am_send(number, payload) == SendStatus::kAgain) messenger.poll(16);
    while (answered_count == before) messenger.poll(16);
  }
  return static_cast<double>(monotonic_ns() - begin_ns) / static_cast<double>(questions.size());
}

int ask(char** words) {
  auto joined = JoinedProcess::join({.join = {.socket_path = words[2], .process = "asker"}});
  if (!joined.ok()) return fail("cannot join");
  Messenger& messenger = joined.value()->messenger();
  messenger.set_handler(kAnswer, {take, nullptr});
  Endpoint& server = *messenger.connect({0U}).take();
  AmId numbers[2];
  for (int i = 0; i < 2; ++i) {
    GetNumber query;
    query.answered = [](NumberQuery& self, std::optional<AmId> number) noexcept {
      static_cast<GetNumber&>(self).number = number;
      static_cast<GetNumber&>(self).is_told = true;
    };
    (void)messenger.ask_number(server, i == 0 ? "echo.ping" : "kvd.get", query);
    while (!query.is_told) messenger.poll(16);
    if (!query.number) return fail("the server has no such message");
    numbers[i] = *query.number;
  }
  std::vector<Question> questions(kSliceQuestions);
  for (uint32_t random = 1; Question & question : questions) {
    random = random * 1664525 + 1013904223;
    std::snprintf(question.bytes + kHeadBytes, 16, "key%07u",
                  (random >> 8) % static_cast<uint32_t>(std::atoi(words[3])));
  }
  answer_bytes = kHeadBytes + static_cast<size_t>(std::atoi(words[4]));
  for (int slice = -1; slice < std::atoi(words[5]); ++slice) {
    const double bare_ns = time_slice_ns(messenger, server, numbers[0], questions);
    const double kvd_ns = time_slice_ns(messenger, server, numbers[1], questions);
    if (slice >= 0) std::printf("%.1f %.1f\n", bare_ns, kvd_ns);  // slice -1 warms up
  }
  joined.value()->leave();
  return wrong_count == 0 ? 0 : fail("an answer is not what was stored");
}

}  // namespace
int main(int count, char** words) {
  if (count == 6 && std::strcmp(words[1], "ask") == 0) return ask(words);
  if (count < 2 || std::strcmp(words[1], "serve") != 0) return fail("usage: see the source");
  static KvService kvd;
  static Echo echo;
  return run_program(count - 1, words + 1, {&kvd, &echo});
}
