#include "pinned_pool/join/join_processes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {

void JoinProcesses::hand_over(JoinConnection& connection, uint32_t instance,
                              const join::Request& request, const Fd& quiet_pipe) noexcept {
  BP_ASSERT(connection.phase == Phase::kConnected);
  roster_.admit(instance, request, connection.pid);
  connections_.end_silence(connection);
  connection.instance = instance;
  connection.phase = Phase::kHandedOver;
  connection.deadline_ns = monotonic_ns() + ready_timeout_ns_;
  ++joining_count_;
  BP_DCHECK_SLOW(is_valid());
  changed(connection, false);
  join::Accepted accepted;
  int descriptors[join::kDescriptorCountMax];
  uint32_t count = roster_.describe(instance, &accepted, descriptors);
  BP_ASSERT(count < join::kDescriptorCountMax);
  descriptors[count++] = quiet_pipe.number();
  const int outcome = join::send_packet(connection.socket.number(), &accepted, accepted.bytes(),
                                        {descriptors, count});
  if (outcome == 0) return;
  // Its place stays taken until the process has ended, as after a failure of the process itself.
  lose(connection, JoinEvent::Kind::kFailed,
       error_while("joining the pool as %s", request.process.text)
           .set_answer_errno(outcome)
           .set_cure("try again in a new process"));
}

void JoinProcesses::read(JoinConnection& connection) noexcept {
  alignas(8) std::byte packet[sizeof(join::Explained)];
  // Stops if the connection is closed meanwhile.
  while (connection.socket.is_open()) {
    if (join::brings_descriptors(connection.socket.number())) return cut_off(connection);
    const int64_t got = join::receive_packet(connection.socket.number(), packet, sizeof packet);
    if (got == -EAGAIN) return;
    if (got <= 0) {
      return lose(
          connection, JoinEvent::Kind::kDied,
          error_while("serving the joined process %s", connection.process.text)
              .set_answer("it closed the connection without leaving")
              .set_cure("find out why the process ended; before a normal end it calls leave()"));
    }
    hear(connection, packet, static_cast<size_t>(got));
  }
}

void JoinProcesses::handle(JoinConnection& connection, Watched watched) noexcept {
  BP_KEEPS_VALID(*this);
  switch (watched) {
    case Watched::kSocket: return read(connection);
    case Watched::kProcess: return process_ended(connection);
    case Watched::kPipe:
      BP_ASSERT(!connection.pipe_is_shut && connection.pipe.is_open());
      connection.pipe_is_shut = true;
      connections_.close(connection, Watched::kPipe);
      return check_quiet(connection);
  }
}

// Handles one packet.
void JoinProcesses::hear(JoinConnection& connection, const void* packet, size_t bytes) noexcept {
  join::Head head = {.kind = join::PacketKind::kRefused};
  std::memcpy(static_cast<void*>(&head), packet, std::min(bytes, sizeof head));
  const bool is_joining = connection.phase == Phase::kHandedOver;
  BP_ASSERT(is_joining || connection.phase == Phase::kJoined);
  auto checked = join::check_head(packet, bytes, head.kind, sizeof head, sizeof(join::Explained));
  if (checked.ok() && head.kind == join::PacketKind::kReady && is_joining) {
    return became_ready(connection);
  }
  if (checked.ok() && head.kind == join::PacketKind::kLeave && !is_joining) {
    return lose(connection, JoinEvent::Kind::kLeft, Error{});
  }
  if (checked.ok() && head.kind == join::PacketKind::kFailed && is_joining &&
      bytes == sizeof(join::Explained)) {
    join::Explained explained;
    std::memcpy(static_cast<void*>(&explained), packet, sizeof explained);
    return lose(connection, JoinEvent::Kind::kFailed, join::told(explained));
  }
  cut_off(connection);
}

void JoinProcesses::became_ready(JoinConnection& connection) noexcept {
  connection.phase = Phase::kJoined;
  no_longer_joining();
  roster_.set_alive(connection.instance);
  const join::Head alive = {.kind = join::PacketKind::kAlive};
  join::send_packet(connection.socket.number(), &alive, sizeof alive);
  changed(connection, false);
  reports_.tell(connection, JoinEvent::Kind::kJoined);
}

// Ends a connection that has sent garbage or descriptors.
void JoinProcesses::cut_off(JoinConnection& connection) noexcept {
  lose(connection, JoinEvent::Kind::kDied,
       error_while("serving the joined process %s", connection.process.text)
           .set_answer("it sent an invalid message")
           .set_cure("it is cut off; end it"));
}

// Declares a process dead: other members see it as dead from now on.
void JoinProcesses::lose(JoinConnection& connection, JoinEvent::Kind kind,
                         const Error& error) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(connection.phase == Phase::kHandedOver || connection.phase == Phase::kJoined);
  if (connection.phase == Phase::kHandedOver) no_longer_joining();
  connection.phase = Phase::kGone;
  connections_.close(connection, Watched::kSocket);
  if (kind == JoinEvent::Kind::kLeft) roster_.set_stopped(connection.instance);
  roster_.set_dead(connection.instance);
  changed(connection, true);
  reports_.tell(connection, kind, error);
}

void JoinProcesses::no_longer_joining() noexcept {
  BP_ASSERT(joining_count_ > 0);
  --joining_count_;
}

void JoinProcesses::process_ended(JoinConnection& connection) noexcept {
  BP_ASSERT(!connection.has_ended && connection.has_part());
  connection.has_ended = true;
  connections_.close(connection, Watched::kProcess);
  // Before other members learn of its death; also for a process that was already dead in the table.
  roster_.set_stopped(connection.instance);
  // Reads its last packets first: one may be kLeave.
  if (connection.phase != Phase::kGone) read(connection);
  if (connection.phase != Phase::kGone) {
    lose(connection, JoinEvent::Kind::kDied,
         error_while("serving the joined process %s", connection.process.text)
             .set_answer("it ended without leaving")
             .set_cure("find out why; before a normal end it leaves"));
  }
  check_quiet(connection);
}

void JoinProcesses::check_quiet(JoinConnection& connection) noexcept {
  if (!connection.is_quiet()) return;
  BP_ASSERT(connection.phase == Phase::kGone);
  roster_.set_quiet(connection.instance);
  changed(connection, false);
  reports_.tell(connection, JoinEvent::Kind::kQuiet);
  releases_.add();
  BP_DCHECK_SLOW(is_valid());
}

void JoinProcesses::end_late_ones() noexcept {
  if (joining_count_ == 0) return;
  const uint64_t now = monotonic_ns();
  for (JoinConnection& connection : connections_.all()) {
    if (joining_count_ == 0) break;
    if (connection.phase != Phase::kHandedOver || now < connection.deadline_ns) continue;
    lose(connection, JoinEvent::Kind::kFailed,
         error_while("joining the pool as %s", connection.process.text)
             .set_answer("it received its part but did not report in time that it is ready")
             .set_cure("end it and start it again"));
  }
}

void JoinProcesses::release_parts() noexcept {
  if (releases_.count() == 0) return;
  BP_KEEPS_VALID(*this);
  releases_.turn(roster_, connections_.all(), [this](JoinConnection& connection) noexcept {
    changed(connection, false);
    reports_.tell(connection, JoinEvent::Kind::kFreed);
    connections_.forget(connection);
  });
}

uint64_t JoinProcesses::due_ns() const noexcept {
  if (joining_count_ == 0) return releases_.due_ns();
  // Deadlines are seconds long: checking twice a second is enough.
  return std::min(releases_.due_ns(), monotonic_ns() + kNsPerSecond / 2);
}

void JoinProcesses::changed(const JoinConnection& connection, bool is_urgent) noexcept {
  doorbells_.changed(roster_.instance(connection.instance).group, is_urgent);
}

// Returns true if the connection's part is in the state of the connection's phase.
bool JoinProcesses::is_valid(const JoinConnection& connection) const noexcept {
  using State = JoinRoster::Instance::State;
  if (connection.instance >= roster_.instance_count()) return false;
  const JoinRoster::Instance& its = roster_.instance(connection.instance);
  if (its.pid != static_cast<uint32_t>(connection.pid)) return false;
  if (connection.phase == Phase::kHandedOver) return its.state == State::kJoining;
  if (connection.phase == Phase::kJoined) return its.state == State::kAlive;
  if (its.state == State::kDead) return true;
  return (its.state == State::kQuiet || its.state == State::kRenewing) && connection.is_quiet();
}

bool JoinProcesses::is_valid() const noexcept {
  using State = JoinRoster::Instance::State;
  if (!connections_.is_valid()) return false;
  size_t joining_count = 0;
  size_t process_count = 0;
  for (const JoinConnection& connection : connections_.all()) {
    if (!connection.has_part()) continue;
    if (!is_valid(connection)) return false;
    joining_count += connection.phase == Phase::kHandedOver ? 1 : 0;
    ++process_count;
  }
  size_t taken_count = 0;
  size_t quiet_count = 0;
  for (uint32_t i = 0; i < roster_.instance_count(); ++i) {
    const State state = roster_.instance(i).state;
    taken_count += state != State::kFree ? 1 : 0;
    quiet_count += state == State::kQuiet || state == State::kRenewing ? 1 : 0;
  }
  return joining_count == joining_count_ && taken_count == process_count &&
         quiet_count == releases_.count();
}

}  // namespace bedplate
