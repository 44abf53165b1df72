// A conversation of two messengers: one side asks, the other answers. The code is the same for a
// peer on the same shard, on another shard, in another process, in an untrusted process, and on
// another host.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/messages/messenger.h"

namespace bedplate {

// The side that answers: "places.echo" sends back what comes, "places.lent" the sum of the bytes
// that were lent, "places.area" a description of its area, which the other side may write.
class Answerer {
 public:
  // The names that it handles.
  static constexpr const char* kNames[] = {"echo", "lent", "area"};

  // Handles them on `messenger`, which outlives this, by `numbers`, in the order of kNames; `area`
  // is what it exposes.
  void create(Messenger& messenger, const AmId (&numbers)[3], std::span<std::byte> area);

  // Sends the replies that had no room, and reads loans. Returns how many it has finished.
  uint32_t poll() noexcept;

 private:
  struct Reply {
    Endpoint* to = nullptr;
    AmId id = 0;
    std::string bytes;
  };
  struct Borrowed : Completion {
    Answerer* self = nullptr;
    Endpoint* from = nullptr;
    AmId reply = 0;
    Loan loan;
    std::string copy;
    bool is_asked = false;
    bool is_here = false;
  };

  void echo(const Message& message) noexcept;
  void borrow(const Message& message) noexcept;
  void describe(const Message& message) noexcept;
  void reply(Endpoint& to, AmId id, std::string bytes) noexcept;

  Messenger* messenger_ = nullptr;
  std::span<std::byte> area_;
  std::vector<Reply> replies_;
  std::vector<std::unique_ptr<Borrowed>> borrowed_;
};

// The side that asks, of one peer: finds it by its name, learns its numbers, and does everything
// that an endpoint can do, once.
class Conversation {
 public:
  // `reply`: the number under which `messenger` hears answers; one conversation at a time.
  // `lent`: memory of the pool that it lends.
  Conversation(Messenger& messenger, std::string peer, AmId reply, std::span<std::byte> lent);
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;
  ~Conversation();

  // A step further, where there is one. Threads: the messenger's.
  uint32_t poll() noexcept;
  bool is_over() const noexcept { return step_ == Step::kOver; }
  // "b by shards, since self: this is a: echo 14, lent 1, put, get, add: good".
  const std::string& report() const noexcept { return report_; }

 private:
  enum class Step {
    kConnect,
    kNames,
    kEcho,
    kEchoed,
    kLend,
    kLent,
    kArea,
    kDescribed,
    kPut,
    kGet,
    kAdd,
    kOver
  };
  struct Done : Completion {
    bool is_done = true;
    bool is_good = true;
  };
  struct Named : NumberQuery {
    bool is_asked = false;
    bool is_answered = false;
    std::optional<AmId> number;
  };

  void heard(const Message& message) noexcept;
  bool connect() noexcept;
  bool learn_names() noexcept;
  bool send_echo() noexcept;
  bool check_echo() noexcept;
  bool lend() noexcept;
  bool ask_area() noexcept;
  bool take_description() noexcept;
  bool operate(SendStatus status, const char* what) noexcept;
  bool end(const std::string& text) noexcept;
  bool next(Step step) noexcept {
    step_ = step;
    return true;
  }
  std::string message_of(size_t bytes) const;

  Messenger& messenger_;
  const std::string peer_name_;
  const AmId reply_;
  std::span<std::byte> lent_;
  Endpoint* peer_ = nullptr;
  Step step_ = Step::kConnect;
  Named named_[3];
  Done done_;
  std::string why_;
  std::string report_;
  std::string heard_;
  bool has_heard_ = false;
  size_t echo_ = 0;
  size_t echo_count_ = 0;
  RemoteMemory area_;
  std::string put_, got_;
  uint64_t before_ = 0;
};

}  // namespace bedplate
