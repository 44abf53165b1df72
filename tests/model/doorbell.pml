/* The doorbell of a shard: two producers, and the shard that sleeps on an eventfd.
 *
 * x86-TSO, as in futex_bell.pml: a producer's message waits in the store buffer of its core until
 * the core drains it. Two fences, one on each side, keep the stores before the checks.
 *
 * Property: the shard does not sleep for ever while a published message waits (an invalid end state
 * for spin).
 *
 * Stands for:
 * code: transport/loop/doorbell.h: std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in announce_sleep
 * code: transport/loop/doorbell.h: if (is_asleep_.load(std::memory_order_relaxed)) wake();
 * code: transport/loop/doorbell.h: is_asleep_.store(true, std::memory_order_relaxed);
 * code: transport/loop/doorbell.h: std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the one in ring
 * code: transport/loop/doorbell.h: void announce_awake() noexcept { is_asleep_.store(false,
 * code: transport/loop/doorbell.cc: write(event_.number(), &one, sizeof one);
 * code: transport/loop/doorbell.cc: read(event_.number(), &count, sizeof count);
 * code: transport/uring/uring_sockets.cc: happened += handle(copy) ? 1 : 0;
 * code: transport/epoll/epoll_sockets.cc: return count + happened;
 * code: transport/loop/loop_rounds.cc: loop_.doorbell.announce_sleep();
 * code: transport/loop/loop_rounds.cc: if (poll_once() == 0 && !loop_.must_stop.load(std::memory_order_acquire)) {
 * code: transport/loop/loop_rounds.cc: sleeper_->sleep_until(deadline_ns);
 * code: transport/loop/loop_rounds.cc: loop_.doorbell.announce_awake();
 *
 * Must fail:
 * mutation: NO_PRODUCER_FENCE  the producer checks before its message is visible
 * mutation: NO_SHARD_FENCE     the shard checks before its announcement is visible
 * mutation: NO_LAST_LOOK       the shard does not check again after its announcement
 * mutation: RING_IS_NO_WORK    the last check reads the eventfd and does not count that as work
 */

#define PRODUCERS 2
#define MESSAGES 2  /* each */

/* Memory. */
byte visible[PRODUCERS];  /* published messages of each, as every core sees them */
bool is_asleep;
bool event;               /* the eventfd is readable */

/* Store buffers. */
byte buffered[PRODUCERS];
#define NOTHING 2
byte buffered_asleep = NOTHING;

byte running = PRODUCERS;
byte received[PRODUCERS];

inline drain(producer) {
  atomic { visible[producer] = visible[producer] + buffered[producer]; buffered[producer] = 0 }
}
inline drain_shard() {
  atomic {
    if
    :: buffered_asleep != NOTHING -> is_asleep = buffered_asleep; buffered_asleep = NOTHING
    :: else
    fi
  }
}

/* The cores, which drain at any time, in order. */
active proctype Cores() {
end:
  do
  :: atomic { buffered[0] > 0 -> buffered[0]--; visible[0]++ }
  :: atomic { buffered[1] > 0 -> buffered[1]--; visible[1]++ }
  :: atomic { buffered_asleep != NOTHING -> is_asleep = buffered_asleep; buffered_asleep = NOTHING }
  od
}

proctype Producer(byte self) {
  byte sent;
  do
  :: sent == MESSAGES -> break
  :: else ->
    atomic { buffered[self]++; sent++ }
#ifndef NO_PRODUCER_FENCE
    drain(self);
#endif
    if
    :: is_asleep -> event = true
    :: !is_asleep
    fi
  od;
  running--
}

#define HAS_WORK (visible[0] != received[0] || visible[1] != received[1])
#define IS_OVER (running == 0 && buffered[0] == 0 && buffered[1] == 0 && !HAS_WORK)

active proctype Shard() {
  do
  :: atomic { IS_OVER -> break }
  :: else ->
    /* poll_once: polls the queues, and then the sockets, which read the eventfd. A shard that is
     * awake polls again, so the result need not be counted. */
    received[0] = visible[0];
    received[1] = visible[1];
    event = false;
    /* sleep */
    buffered_asleep = true;
#ifndef NO_SHARD_FENCE
    drain_shard();
#endif
#ifndef NO_LAST_LOOK
    if
    :: visible[0] != received[0] -> goto awake
    :: visible[0] == received[0]
    fi;
    if
    :: visible[1] != received[1] -> goto awake
    :: visible[1] == received[1]
    fi;
    if
    :: atomic { event -> event = false }
#ifndef RING_IS_NO_WORK
      goto awake
#endif
    :: !event
    fi;
#endif
    /* sleep_until: ends at once if the eventfd is readable already. */
    if
    :: event
    :: atomic { IS_OVER -> break }
    fi;
awake:
    buffered_asleep = false
  od
}

init { atomic { run Producer(0); run Producer(1) } }
