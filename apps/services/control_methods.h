// The methods that an appliance answers while it runs, over its control socket (docs/control.md):
// one table, used by the socket, by `bedplate ctl --list` and by shell completion.
//
// The runtime has some methods. A service, also one from outside the tree, adds its own in
// Service::methods():
//
//     void methods(ControlMethods& methods) override {
//       methods.add({.name = "flush",
//                    .parameters = {{.name = "key", .help = "Which one."}},
//                    .result = "{\"flushed\": N}",
//                    .help = "Forgets an item."},
//                   [](void* self, ControlCall& call) noexcept {
//                     static_cast<Cache*>(self)->flush(call);
//                   }, this);
//     }
//
// The method's name is then "cache.flush". methods() may be called while nothing runs: a table is
// also made to be printed. Threads: the table belongs to the main thread; ControlCall says on which
// thread a method is called.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "apps/counters/json_text.h"
#include "platform/result.h"

namespace bedplate {

class EventLoop;

enum class ControlType : uint8_t { kText, kNumber, kBoolean };

// The type's name in the table, and in the error for a wrong type: "text", "number", "boolean".
const char* to_text(ControlType type) noexcept;

struct ControlParameter {
  std::string name;  // of a-z, 0-9 and _
  ControlType type = ControlType::kText;
  bool is_required = true;
  std::string help = {};  // one sentence
};

inline constexpr size_t kControlParametersMax = 8;

// One request of a client, while it is answered. Its arguments are checked before the method is
// called: all required ones are present, each has its declared type, and there are no others.
//
// A method is called on the thread of the control socket, beside the shards, and may read what any
// thread may read. It does not block. It does a shard's work on that shard, by go_on(). It answers
// by writing one JSON value into result(), or by refuse().
class ControlCall {
 public:
  using Function = void (*)(void* context, ControlCall& call) noexcept;

  bool has(std::string_view parameter) const noexcept { return find(parameter) != nullptr; }
  // The value of the argument; without an argument, `otherwise`. A text is valid until the answer
  // is complete. Requires: the parameter has this type.
  std::string_view text(std::string_view parameter, std::string_view otherwise = "") const noexcept;
  uint64_t number(std::string_view parameter, uint64_t otherwise = 0) const noexcept;
  bool boolean(std::string_view parameter, bool otherwise = false) const noexcept;

  // Writes the answer, 16 KiB at most: instead of a longer one the client gets an error.
  JsonText& result() noexcept { return result_; }
  // Refuses, with the three parts of an error: what was being done, what prevents it, what to do.
  void refuse(const Error& error) noexcept;
  bool is_refused() const noexcept { return is_refused_; }
  const Error& error() const noexcept { return error_; }

  // Calls `function` on the thread of `loop`, once the method has returned; `function` ends the
  // answer. If `function` has not returned within two seconds, the client gets the error that the
  // shard is stuck; the loop may still call `function` later. Until then, further calls for this
  // loop are refused. Requires: called by the method itself, at most once in each call of it, not
  // by `function`. Ownership: `context` outlives the loop's run.
  void go_on(EventLoop& loop, Function function, void* context) noexcept;

  // State of the method, kept from one step to the next.
  struct {
    void (*function)() = nullptr;
    void* context = nullptr;
  } state;

  // For an answer that is too long for one buffer: after more(page) the text written so far is
  // sent, and the method is called again, with page() == page, to continue. The first page is 0.
  // For a notification (a request without an answer) the method is called for the first page only.
  // Requires: each page has text.
  uint64_t page() const noexcept { return page_; }
  void more(uint64_t page) noexcept {
    page_ = page;
    has_more_ = true;
  }

 protected:
  struct Value {
    std::string_view name;
    ControlType type = ControlType::kText;
    std::string_view text = {};
    uint64_t number = 0;  // of a boolean: 0 or 1
  };

  static void require_type(const Value* value, ControlType type, const char* function) noexcept;

  ControlCall() noexcept = default;
  ~ControlCall() = default;
  const Value* find(std::string_view parameter) const noexcept;

  // Set by the session that makes the calls.
  Value values_[kControlParametersMax];
  size_t value_count_ = 0;
  JsonText result_;
  Error error_;
  bool is_refused_ = false;
  uint64_t page_ = 0;
  bool has_more_ = false;
  EventLoop* loop_ = nullptr;
  Function next_ = nullptr;
  void* next_context_ = nullptr;
};

struct ControlMethod {
  std::string name;                               // of a-z, 0-9, _ and -, with dots between words
  std::vector<ControlParameter> parameters = {};  // kControlParametersMax at most
  std::string result = {};                        // the method's answer: `{"held": true}`
  std::string help = {};                          // the method's effect: one sentence
  std::string needs = {};  // without this the method refuses: "a volume on a store"
  ControlCall::Function function = nullptr;
  void* context = nullptr;
  HeapOwner asker = {};  // set by the table: the owner of allocations in add(), and in calls
};

class ControlMethods {
 public:
  // Adds a method; its name gets the service's name as a prefix: "cache.flush". Refuses a method
  // with a wrong or a known name, without a function, or with more than kControlParametersMax
  // parameters: refusal() then says so, and the boot ends. Ownership: `context` outlives the
  // appliance.
  void add(ControlMethod method, ControlCall::Function function, void* context);

  // For the runtime: `owner` is the prefix of the names that follow, unless it is empty.
  void set_owner(std::string_view owner) { owner_ = owner; }
  const std::vector<ControlMethod>& all() const noexcept { return methods_; }
  // Errors (kSystem): the first method that add() has refused.
  Result<void> refusal() const;
  // nullptr: there is no such method. The pointer is valid until the next add().
  const ControlMethod* find(std::string_view name) const noexcept;

 private:
  const char* defect_of(const ControlMethod& method) const noexcept;

  std::string owner_;
  std::vector<ControlMethod> methods_;
  std::optional<Error> refusal_;
};

}  // namespace bedplate
