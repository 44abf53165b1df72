#include "tests/guest/attacks.h"

#include <cstdio>
#include <iterator>

#include "platform/clock.h"
#include "tests/transport/verbs/verbs_stranger.h"

namespace bedplate::traffic {
namespace {

using test::Stranger;

constexpr uint64_t kAnswerNsMax = 10 * kNsPerSecond;

int failed = 0;

void say(const char* attack, bool is_refused, const char* how) {
  std::printf("hostile: %s: %s%s\n", attack, is_refused ? "" : "NOT REFUSED: ", how);
  failed += !is_refused;
}

// Each attacker is a new instance, because the victim ignores an instance that it has cut off.
class Attacker {
 public:
  explicit Attacker(const AttackOptions& options)
      : stranger_({.device = options.device,
                   .keys = options.keys,
                   .address = options.address,
                   .name = options.name.c_str()}) {
    static uint64_t instance = monotonic_ns();
    stranger_.instance = ++instance;
  }
  Stranger& stranger() { return stranger_; }
  // Retries, because the victim may not have dropped the predecessor yet.
  bool connect() {
    const uint64_t deadline_ns = monotonic_ns() + kAnswerNsMax;
    while (!stranger_.connect()) {
      if (monotonic_ns() > deadline_ns) return false;
    }
    return true;
  }
  bool is_hung_up_on() { return !stranger_.answer().has_value() && stranger_.is_hung_up_on; }

 private:
  Stranger stranger_;
};

void say_garbage(const AttackOptions& options) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "BPVERBS1 and half a record"}) {
    Attacker attacker(options);
    attacker.stranger().dial();
    attacker.stranger().say(text, std::strlen(text));
    say(text[0] == 'G' ? "garbage" : "half a record", attacker.is_hung_up_on(), "hung up");
  }
  for (const test::RecordFault& fault : test::kRecordFaults) {
    Attacker attacker(options);
    HandshakeRecord record = attacker.stranger().hello();
    fault.spoil(record);
    if (fault.is_summed) finish_record(record);
    attacker.stranger().dial();
    attacker.stranger().say(&record, sizeof record);
    const auto answer = attacker.stranger().answer();
    const bool is_refused = answer.has_value() &&
                            check_record(*answer, HandshakeKind::kRefusal) == Refusal::kNone &&
                            answer->refusal == static_cast<uint32_t>(fault.refusal);
    say("a record with a fault", is_refused, to_text(fault.refusal));
  }
}

// Sends good hellos, each from a new instance that does not wait for the answer, and opens sockets
// that send half a hello and stay open.
void flood(const AttackOptions& options) {
  constexpr int kHelloCount = 200;
  std::vector<std::unique_ptr<Attacker>> waiting;
  for (int i = 0; i < kHelloCount; ++i) {
    if (i % 8 == 0) {
      waiting.push_back(std::make_unique<Attacker>(options));
      waiting.back()->stranger().dial();
      waiting.back()->stranger().say(kHandshakeMagic, sizeof kHandshakeMagic);
    }
    Attacker attacker(options);
    const HandshakeRecord record = attacker.stranger().hello();
    attacker.stranger().dial();
    attacker.stranger().say(&record, sizeof record);
  }
  waiting.clear();
  Attacker attacker(options);
  say("a flood of hellos", attacker.connect(), "the victim answers on");
}

// verbs_hostile_test.cc checks, in one process, that a peer stays cut off. That is not possible
// here: one of these attacks needs the victim to receive all of it in one poll.
void send_nonsense(const AttackOptions& options) {
  for (const test::MessageAttack& one : test::kMessageAttacks) {
    Attacker attacker(options);
    if (!attacker.connect()) {
      say(one.name, false, "it does not connect");
      continue;
    }
    one.run(attacker.stranger());
    say(one.name, attacker.is_hung_up_on(), "hung up");
  }
}

// Sends more than its window, faster than the victim can poll.
void send_too_many(const AttackOptions& options) {
  Attacker attacker(options);
  if (!attacker.connect()) return say("more than its window", false, "it does not connect");
  for (uint32_t i = 0; i < 120; ++i) {
    VerbsMessageHeader header = attacker.stranger().header();
    header.number = i;
    attacker.stranger().post(header, "", 0);
  }
  say("more than its window", attacker.is_hung_up_on(), "hung up");
}

// Accesses memory that the device must refuse. Not every device reports this to the victim, which
// then learns it at the hang-up.
void reach_for_memory(const AttackOptions& options) {
  const uint64_t begin = options.export_address;
  const uint64_t end = begin + options.export_bytes;
  const struct {
    const char* name;
    uint64_t address;
    uint32_t bytes;
    uint32_t key;
  } targets[] = {
      {"a wrong key", begin, 64, options.key ^ 0x55},
      {"a key that does not exist", begin, 64, 0x7fff'ff00},
      {"an address before the export", begin - 4096, 64, options.key},
      {"an address behind the export", end, 64, options.key},
      {"a length that runs over the end", end - 64, 65, options.key},
      {"all addresses", 0, 64, options.key},
  };
  for (const ibv_wr_opcode operation : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
    for (const auto& target : targets) {
      char name[80];
      std::snprintf(name, sizeof name, "%s %s",
                    operation == IBV_WR_RDMA_READ ? "reading with" : "writing with", target.name);
      Attacker attacker(options);
      if (!attacker.connect()) {
        say(name, false, "it does not connect");
        continue;
      }
      usleep(50'000);  // by now the victim, too, has the connection up
      const ibv_wc_status status =
          attacker.stranger().access(operation, target.address, target.key, target.bytes);
      // IBV_WC_REM_ACCESS_ERR; on a busy machine the answer may be too late for the stranger.
      say(name, status != IBV_WC_SUCCESS, ibv_wc_status_str(status));
    }
  }
}

}  // namespace

int attack(const std::string& kind, const AttackOptions& options) {
  const struct {
    const char* kind;
    void (*run)(const AttackOptions&);
  } attacks[] = {{"records", say_garbage},
                 {"flood", flood},
                 {"messages", send_nonsense},
                 {"window", send_too_many},
                 {"memory", reach_for_memory}};
  for (const auto& one : attacks) {
    if (kind == one.kind) {
      one.run(options);
      return failed == 0 ? 0 : 1;
    }
  }
  std::fprintf(stderr, "hostile: there is no attack %s\n", kind.c_str());
  return 2;
}

}  // namespace bedplate::traffic
