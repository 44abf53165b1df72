#include "pinned_pool/join/join_reports.h"

#include <algorithm>
#include <utility>

#include "platform/assert.h"
#include "platform/log.h"

namespace bedplate {

const char* to_text(JoinEvent::Kind kind) noexcept {
  switch (kind) {
    case JoinEvent::Kind::kJoined: return "joined";
    case JoinEvent::Kind::kRefused: return "was refused";
    case JoinEvent::Kind::kFailed: return "could not join";
    case JoinEvent::Kind::kLeft: return "left";
    case JoinEvent::Kind::kDied: return "died";
    case JoinEvent::Kind::kQuiet: return "is quiet";
    case JoinEvent::Kind::kFreed: return "is forgotten";
  }
  return "?";
}

JoinReports::JoinReports(const JoinRoster& roster, const ThreadOwner& control, OnEvent on_event,
                         uint64_t log_period_ns)
    : roster_(roster), control_(control), on_event_(std::move(on_event)) {
  for (uint32_t i = 0; i < roster.grant_count(); ++i) {
    const uint32_t lines = kLinesOfGrant + kLinesOfProcess * roster.grant(i).max_count;
    limits_.emplace_back(lines, log_period_ns);
  }
  limits_.emplace_back(kLinesOfStrangers, log_period_ns);
}

const char* JoinReports::source_of(uint32_t grant) const noexcept {
  return grant < roster_.grant_count() ? roster_.grant(grant).name.text : "unknown processes";
}

void JoinReports::tell(const JoinConnection& connection, JoinEvent::Kind kind,
                       const Error& error) noexcept {
  BP_ASSERT(control_.is_caller());
  const uint32_t source = std::min(connection.grant, roster_.grant_count());
  const bool may_be_logged = limits_[source].try_pass(source_of(source));
  if (may_be_logged && error.answer[0] != '\0') log_error(error);
  if (!on_event_) return;
  JoinEvent event;
  event.kind = kind;
  event.process = connection.process;
  event.pid = connection.pid;
  event.error = error;
  event.may_be_logged = may_be_logged;
  if (kind != JoinEvent::Kind::kRefused) {
    const JoinRoster::Instance& instance = roster_.instance(connection.instance);
    event.group = instance.group;
    event.member = instance.members[0];
    event.member_count = instance.member_count;
    event.is_trusted = roster_.grant_of(instance).is_trusted;
  }
  on_event_(event);
}

void JoinReports::log_of_strangers(const Error& error) noexcept {
  const uint32_t strangers = roster_.grant_count();
  if (limits_[strangers].try_pass(source_of(strangers))) log_error(error);
}

void JoinReports::lift_limits() noexcept {
  for (uint32_t i = 0; i < limits_.size(); ++i) {
    if (limits_[i].due_ns() != UINT64_MAX) limits_[i].lift(source_of(i));
  }
}

uint64_t JoinReports::due_ns() const noexcept {
  uint64_t due = UINT64_MAX;
  for (const LogLimit& limit : limits_) due = std::min(due, limit.due_ns());
  return due;
}

}  // namespace bedplate
