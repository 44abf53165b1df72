/* The doorbell of a member: two senders, one of which may be killed at any step, or stopped there
 * for ever, the member that sleeps, and the owner of the pool, which wakes all members when it has
 * noticed a death.
 *
 * x86-TSO: a sender's message waits in the store buffer of its core, past the sender's own load of
 * `asleep`, until the core drains it: at any time, at an atomic instruction, at a fence, or when
 * membarrier interrupts the core. A killed sender's stores still arrive, before the owner learns of
 * its death.
 *
 * Property: the member does not sleep for ever while a published message waits, unless the sender
 * of the message is stopped, nor after a death was noted in the members table (an invalid end state
 * for spin).
 *
 * Left out: a sender wakes the member only once for each sleep (woken_), because it need not repeat
 * its own wake-up.
 *
 * Stands for:
 * code: transport/shm/queue/futex_bell.h: asleep_->load(std::memory_order_relaxed) != kAwake)) wake();
 * code: transport/shm/queue/futex_bell.h: fence_ == BellFence::kBoth
 * code: transport/shm/queue/futex_bell.h: asleep_->store(kAwake, std::memory_order_relaxed);
 * code: transport/shm/queue/futex_bell.cc: asleep_->store(sleep_, std::memory_order_relaxed);
 * code: transport/shm/queue/futex_bell.cc: std::atomic_thread_fence(std::memory_order_seq_cst);
 * code: transport/shm/queue/futex_bell.cc: membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
 * code: transport/shm/queue/futex_bell.cc: FUTEX_WAIT, sleep_,
 * code: transport/shm/queue/futex_bell.cc: !asleep_->compare_exchange_weak(word, (word & ~kStateMask) | kBeingWoken,
 * code: transport/shm/queue/futex_bell.cc: if (state_of(word) == kAwake) return;
 * code: transport/shm/queue/futex_bell.cc: void FutexBell::wake_anyway()
 * code: transport/messages/messenger.cc: for (Provider* provider : providers_) provider->announce_sleep();
 * code: transport/messages/messenger.cc: if (poll(kLastLookBudget) == 0) sleeper->sleep(std::min(timeout_ns, sleep_max_ns()));
 * code: transport/messages/messenger.cc: for (Provider* provider : providers_) provider->announce_awake();
 *
 * check: SLEEPER              membarrier by the sleeper (BellFence::kSleeper)
 * check: BOTH                 a fence by every sender (BellFence::kBoth)
 *
 * Must fail:
 * mutation: SLEEPER NO_MEMBARRIER   nobody drains the senders' store buffers
 * mutation: BOTH NO_SENDER_FENCE    neither membarrier nor the sender's fence
 * mutation: BOTH NO_SLEEPER_FENCE   the sleeper checks before its announcement is visible
 * mutation: SLEEPER NO_LAST_LOOK    the sleeper does not check again after its announcement
 * mutation: SLEEPER WAIT_WHATEVER   futex_wait does not compare
 * mutation: SLEEPER ONE_WAKES       a sender leaves the wake-up to another that has begun it
 * mutation: SLEEPER NO_WAKE_MEMBERS  the owner wakes nobody after a death
 */

#define SENDERS 2
#define MESSAGES 2  /* each */

/* Memory. */
byte visible[SENDERS];   /* messages of each sender in the queue, as every core sees them */
#define AWAKE 0
#define ASLEEP 1
#define BEING_WOKEN 2
byte asleep;
byte epoch;              /* of the members table */
bool is_in_futex;        /* the sleeper, in the kernel's queue */

/* Store buffers. */
byte buffered[SENDERS];  /* messages published and not visible yet */
#define NOTHING 3
byte buffered_asleep = NOTHING;  /* the sleeper's; only the newest value counts */

bool killed;             /* sender 0 */
bool is_noticed = true;  /* false: it is stopped, and its messages may wait */
bool has_stopped;
byte running = SENDERS;
bool owner_is_done;
byte received[SENDERS];

inline drain(sender) {
  atomic { visible[sender] = visible[sender] + buffered[sender]; buffered[sender] = 0 }
}
inline drain_sleeper() {
  atomic {
    if
    :: buffered_asleep != NOTHING -> asleep = buffered_asleep; buffered_asleep = NOTHING
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
  :: atomic { buffered_asleep != NOTHING -> asleep = buffered_asleep; buffered_asleep = NOTHING }
  od
}

proctype Sender(byte self) {
  byte sent;
  {
    do
    :: sent == MESSAGES -> break
    :: else ->
      atomic { buffered[self]++; sent++ }
#if defined(BOTH) && !defined(NO_SENDER_FENCE)
      drain(self);
#endif
      if
      :: asleep != AWAKE ->
        /* wake: the compare-and-swap is a fence as well */
        atomic {
          drain(self);
          if
          :: asleep == AWAKE -> goto rang
#ifdef ONE_WAKES
          :: asleep == BEING_WOKEN -> goto rang
          :: asleep == ASLEEP -> asleep = BEING_WOKEN
#else
          :: else -> asleep = BEING_WOKEN
#endif
          fi
        }
        is_in_futex = false
      :: asleep == AWAKE
      fi;
rang: skip
    od
  } unless { self == 0 && killed };
  atomic {
    running--;
    if
    :: self == 0 -> has_stopped = true
    :: else
    fi
  }
}

#define HAS_MESSAGES ((is_noticed && visible[0] != received[0]) || visible[1] != received[1])
#define HAS_WORK (HAS_MESSAGES || epoch != seen_epoch)

active proctype Sleeper() {
  byte seen_epoch;
  do
  :: atomic {
       owner_is_done && running == 0 && buffered[0] == 0 && buffered[1] == 0 && !HAS_WORK -> break
     }
  :: else ->
    /* poll */
poll:
    received[0] = visible[0];
    received[1] = visible[1];
    seen_epoch = epoch;
    /* wait: announce_sleep, a last check, sleep, announce_awake */
    buffered_asleep = ASLEEP;
#ifndef NO_SLEEPER_FENCE
    drain_sleeper();
#endif
#if defined(SLEEPER) && !defined(NO_MEMBARRIER)
    drain(0);
    drain(1);
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
    :: epoch != seen_epoch -> goto awake
    :: epoch == seen_epoch
    fi;
#endif
    /* futex_wait is a system call that locks: it drains the buffer. */
    atomic {
      drain_sleeper();
#ifndef WAIT_WHATEVER
      if
      :: asleep != ASLEEP -> goto awake
      :: else
      fi;
#endif
      is_in_futex = true
    }
    /* There is no timeout. The test is over when all have ended and no work is left. */
    if
    :: !is_in_futex
    :: atomic {
         owner_is_done && running == 0 && buffered[0] == 0 && buffered[1] == 0 && !HAS_WORK -> break
       }
    fi;
awake:
    buffered_asleep = AWAKE
  od
}

active proctype Owner() {
  if
  :: skip  /* nobody dies */
  :: atomic { killed = true; is_noticed = false }  /* stopped, for ever */
  :: killed = true;
    has_stopped && buffered[0] == 0;
    epoch++;
    /* wake_members */
#ifndef NO_WAKE_MEMBERS
    asleep = AWAKE;
    is_in_futex = false
#endif
  fi;
  owner_is_done = true
}

init { atomic { run Sender(0); run Sender(1) } }
