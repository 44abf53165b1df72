// Carries the records of a handshake over the RDMA connection manager (librdmacm) instead of a
// socket.
//
// A call is an rdma_cm_id. The hello travels in the request, in a shorter form (CmHello), because a
// request carries only 56 bytes. The welcome travels in the reply, a refusal in the rejection. The
// established event is the ready record; it carries no data. A disconnection is a hang-up.
// librdmacm does not own the queue pairs: they are made before the seal, and the records bring them
// up.
//
// librdmacm allocates each call and each event from the common heap, and frees them. If memory runs
// out, the call fails. Threads: one at a time; LinkConnector, which owns this, has the thread.
// Sources: rdma_cm(7), and for the events rdma_get_cm_event(3).
//
// Invariants, around each change: 1. It listens, and has calls, only while it is open. 2. Each
// call, dialed or received, is closed once: call_count() counts the open calls, and is 0 at the
// end. (is_valid, and LinkTalks::is_valid, which knows the calls)
#pragma once

#include <cstdint>

#include <rdma/rdma_cma.h>

#include "platform/assert.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/device/verbs_device.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

class ConnectionManager {
 public:
  ConnectionManager() noexcept = default;
  ConnectionManager(const ConnectionManager&) = delete;
  ConnectionManager& operator=(const ConnectionManager&) = delete;
  // Requires: all calls are closed.
  ~ConnectionManager();

  // Makes librdmacm open its devices now, before the seal. Listens on `listen` unless it is
  // nullptr. `device` outlives this. Errors (kSystem): the module rdma_ucm is not loaded; it cannot
  // listen on the address; the address is not a TCP address. Requires: called once.
  Result<void> open(const VerbsDevice& device, const SocketAddress* listen) noexcept;
  bool is_open() const noexcept { return channel_ != nullptr; }
  // Readable while there are events. Requires: it is open.
  int event_fd() const noexcept {
    BP_DCHECK(is_open());
    return channel_->fd;
  }
  // How many calls are open.
  uint32_t call_count() const noexcept { return call_count_; }
  bool is_valid() const noexcept {
    return is_open() ? device_ != nullptr : listener_ == nullptr && call_count_ == 0;
  }

  struct Event {
    enum class Kind : uint8_t {
      kCalled,   // `call` is new; `record` is its hello
      kReached,  // a dialed peer is ready for our hello
      kRecord,   // `record` came
      kHungUp,   // the call failed or ended: `why`
    };
    Kind kind = Kind::kHungUp;
    rdma_cm_id* call = nullptr;
    HandshakeRecord record = {};
    const char* why = "";  // static text
  };
  // Takes one event. Does not block. Returns false if there was none. `name_of` maps the hash in a
  // hello to a name, or to nullptr. `own_instance`: as for complete_record(). Ownership: the caller
  // closes a new call.
  template <typename NameOf>
  bool take_event(Event* event, uint64_t own_instance, NameOf name_of) noexcept;

  // Starts a call. A later event says kReached or kHungUp. Returns nullptr on failure; errno says
  // why. Ownership: the caller closes the call.
  rdma_cm_id* dial(const SocketAddress& address) noexcept;
  // Sends in the message that fits the record's kind. Requires: the handshake expects that kind
  // next. Returns false if it failed; errno says why.
  bool send(rdma_cm_id* call, const HandshakeRecord& record) noexcept;
  // Ends the call: no more events of it follow.
  void close(rdma_cm_id* call) noexcept;
  // Writes the other end's host, as "10.0.0.2", into `text`, terminated; "" if it is not known.
  // Requires: text_bytes >= INET6_ADDRSTRLEN.
  static void host_of(rdma_cm_id* call, char* text, uint32_t text_bytes) noexcept;

 private:
  bool next_event(Event* event, CmHello* hello) noexcept;
  void translate(const rdma_cm_event& raw, Event* event, CmHello* hello) noexcept;

  const VerbsDevice* device_ = nullptr;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  uint32_t call_count_ = 0;
};

template <typename NameOf>
bool ConnectionManager::take_event(Event* event, uint64_t own_instance, NameOf name_of) noexcept {
  CmHello hello;
  if (!next_event(event, &hello)) return false;
  if (event->kind == Event::Kind::kCalled) {
    complete_record(event->record, hello, name_of(hello.name_hash), own_instance);
  }
  return true;
}

}  // namespace bedplate
