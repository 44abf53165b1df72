#include "transport/dpdk/port/memif_gate.h"

#include <algorithm>
#include <cstdint>
#include <mutex>

#include <sched.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint32_t kGateMax = 16 * 32;  // ports with queues
std::mutex gates_mutex;  // EAL's thread connects a port while the main thread makes the next one
MemifGate* gates[kGateMax];
uint32_t gate_count = 0;

// Waits until each burst in progress has ended. Later bursts see the caller's earlier writes.
void wait_for_bursts() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::lock_guard lock(gates_mutex);
  for (uint32_t i = 0; i < gate_count; ++i) {
    while (gates[i]->is_inside()) sched_yield();
  }
}

}  // namespace

std::atomic<uint32_t> MemifGate::closed_count{0};

MemifGate::MemifGate() noexcept {
  const std::lock_guard lock(gates_mutex);
  BP_ASSERT(gate_count < kGateMax);
  gates[gate_count++] = this;
}

MemifGate::~MemifGate() {
  const std::lock_guard lock(gates_mutex);
  MemifGate** const end = gates + gate_count;
  MemifGate** const own = std::find(gates, end, this);
  BP_ASSERT(own != end && !is_inside());
  *own = gates[--gate_count];
}

void close_memif_gates() noexcept {
  MemifGate::closed_count.fetch_add(1, std::memory_order_seq_cst);
  wait_for_bursts();
}

void open_memif_gates() noexcept {
  const uint32_t count = MemifGate::closed_count.fetch_sub(1, std::memory_order_release);
  BP_ASSERT(count > 0 && "opened more often than closed");
}

}  // namespace bedplate

// Wraps the driver's functions, and EAL's functions that the driver calls before it closes
// descriptors. By then it has marked the port as not connected, so later bursts touch nothing. A
// burst that has read an old ring's address must not see the port connected again: so the gates are
// closed while the driver connects.
extern "C" {

struct rte_eth_dev;
struct rte_intr_handle;
using IntrCallback = void (*)(void*);
using IntrDone = void (*)(rte_intr_handle*, void*);

[[gnu::weak]] int __real_memif_connect(rte_eth_dev* device);
[[gnu::weak]] void __real_memif_free_regions(rte_eth_dev* device);
int __real_rte_intr_callback_unregister(const rte_intr_handle* handle, IntrCallback callback,
                                        void* argument);
int __real_rte_intr_callback_unregister_pending(const rte_intr_handle* handle,
                                                IntrCallback callback, void* argument,
                                                IntrDone done);

int __wrap_memif_connect(rte_eth_dev* device) {
  bedplate::close_memif_gates();
  const int outcome = __real_memif_connect(device);
  bedplate::open_memif_gates();
  return outcome;
}

void __wrap_memif_free_regions(rte_eth_dev* device) {
  bedplate::wait_for_bursts();
  __real_memif_free_regions(device);
}

int __wrap_rte_intr_callback_unregister(const rte_intr_handle* handle, IntrCallback callback,
                                        void* argument) {
  bedplate::wait_for_bursts();
  return __real_rte_intr_callback_unregister(handle, callback, argument);
}

int __wrap_rte_intr_callback_unregister_pending(const rte_intr_handle* handle,
                                                IntrCallback callback, void* argument,
                                                IntrDone done) {
  bedplate::wait_for_bursts();
  return __real_rte_intr_callback_unregister_pending(handle, callback, argument, done);
}

}  // extern "C"
