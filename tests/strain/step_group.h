// A group whose senders are stepped, and the checks at each stop.
#pragma once

#include <memory>
#include <optional>

#include "tests/strain/step.h"
#include "tests/strain/step_receiver.h"
#include "tests/strain/traced_process.h"

namespace bedplate::strain {

// The fault at one boundary of one case.
enum class StepFault : uint8_t {
  kStalled,    // others' messages did not arrive while the sender was stopped
  kStuck,      // nor did they arrive after the sender ended or continued
  kLost,       // a message reported as sent never arrived
  kSpoilt,     // a message was duplicated, out of order, or corrupt
  kRefused,    // this send or a later one returned a forbidden status
  kNeverEnds,  // a loan or operation never completes
  kNotFreed,   // the sender's member slot is not free after the sender's end
  kDied,       // the sender died
  kSleepless,  // the receiver did not fall asleep before the stepping began
  kCount
};
const char* to_text(StepFault fault) noexcept;

struct StepOutcome {
  uint32_t faults = 0;     // a bit for each StepFault
  bool is_beyond = false;  // the call ended before this boundary
  bool slept = false;      // the receiver slept when others sent
  bool is_unsaid = false;  // declared dead; a message reported as sent never arrived
  uint64_t delivery_ns = 0;
  char texts[static_cast<size_t>(StepFault::kCount)][160] = {};

  bool has(StepFault fault) const noexcept {
    return (faults >> static_cast<uint32_t>(fault) & 1) != 0;
  }
};

class StepGroup {
 public:
  StepGroup(StepQueue queue, uint64_t hang_ns, uint64_t seed);
  ~StepGroup();

  // Stops the sender before instruction `boundary` of the call, and returns the outcome.
  StepOutcome try_boundary(const StepCase& which, uint32_t boundary);
  // Returns the number of instructions of one call.
  uint32_t measure(const StepCase& which);
  // False: the group is unusable; create a new one in a new process.
  bool is_good() const noexcept { return is_good_; }

 private:
  struct Order {
    Deed deed = Deed::kShort;
    bool is_marked = false;
  };

  StepControl& control() noexcept { return group_.board().step; }
  void provide_sender();
  void retire_sender();
  bool give_order(const Order& order);
  bool wait_for_answer();
  bool perform(Deed deed);
  bool warm_up(const StepCase& which);
  bool enter(const StepCase& which, uint32_t boundary, StepOutcome* outcome);
  void let_others_send(uint32_t messages, StepFault fault, StepOutcome* outcome);
  bool finish_call(const StepCase& which, StepOutcome* outcome);
  void go_on(const StepCase& which, StepOutcome* outcome);
  void kill(StepOutcome* outcome);
  void hang_up(const StepCase& which, StepOutcome* outcome);
  void check_answer(const StepCase& which, bool is_dead, StepOutcome* outcome);
  void check_message(bool is_dead, StepOutcome* outcome);
  void check_follower(StepOutcome* outcome);
  void check_told(StepOutcome* outcome);
  void note(StepOutcome* outcome, StepFault fault, const char* format, ...)
      __attribute__((format(printf, 4, 5)));
  uint32_t lap_messages() const noexcept;

  StepQueue queue_;
  uint64_t hang_ns_;
  StrainedGroup group_;
  StepReceiver receiver_;
  StepSenders others_;
  TracedProcess sender_;
  uint32_t member_ = 0;
  uint64_t attempt_ = 0;  // number of the current or last message
  uint64_t adds_ = 0;     // expected value of the receiver's word 0
  uint64_t ended_ = 0;    // completions that must have been called
  bool is_warm_[std::size(kDeeds)] = {};
  bool is_good_ = true;
};

}  // namespace bedplate::strain
