/* The inbound FIFO of a member, its reader, and writers that are stopped, cut off and killed.
 *
 * Two writers, each of which may be slower than the reader's timeout. One of them may be declared
 * dead, with its connection closed, while it still runs; it may also be killed between any two of
 * its steps. The owner of the pool sees both, and gives the member slot to a new process after the
 * old process has ended and the reader has acknowledged that. Or the owner itself dies before it
 * can announce the end. Two FIFO slots; laps count modulo four. Loads and stores are sequentially
 * consistent: on x86 nothing here depends on a store being passed by a later load.
 *
 * Properties: each published message is delivered once, complete, in the order of its writer, and
 * with the writer's generation, except messages of a dead writer after its end was acknowledged. No
 * process waits for ever (an invalid end state for spin): neither the reader for a slot that is not
 * published, nor a writer for room. The member slot is not reused while the reader may still meet a
 * FIFO slot of the dead writer. In the end no FIFO slot is lost.
 *
 * Left out: the limits of attempts, which honest writers do not reach, and time: the reader may
 * pass over a claim of a running writer at any time, twice in all, so the length of the timeout
 * does not matter. The reader polls for ever; tests check that it does not fall asleep before the
 * timeout (is_awaited).
 *
 * Stands for:
 * code: transport/shm/queue/inbound_fifo_datapath.h: index + 1 - *known_tail > mask_ + 1
 * code: transport/shm/queue/inbound_fifo_datapath.h: *known_tail = tail_->load(std::memory_order_acquire);
 * code: transport/shm/queue/inbound_fifo_datapath.h: if (slot_lap(word) == lap) {
 * code: transport/shm/queue/inbound_fifo_datapath.h: if (slot_lap(word) != lap_before(lap)) continue;
 * code: transport/shm/queue/inbound_fifo_datapath.h: BP_UNLIKELY(is_claim(before, ClaimState::kRetired))) {
 * code: transport/shm/queue/inbound_fifo_datapath.h: slot.header.compare_exchange_strong(word, pack_slot(lap, before),
 * code: transport/shm/queue/inbound_fifo_datapath.h: if (!slot.header.compare_exchange_strong(word, claimed,
 * code: transport/shm/queue/inbound_fifo_datapath.h: claims_->compare_exchange_strong(index, own + 1,
 * code: transport/shm/queue/inbound_fifo_datapath.h: if (BP_LIKELY(claim.slot->header.compare_exchange_strong(
 * code: transport/shm/queue/inbound_fifo_datapath.h: free_retired(*claim.slot, claim.sender);
 * code: transport/shm/queue/inbound_fifo_datapath.h: word, pack_slot(lap, claimed_slot(claim.sender, state)), std::memory_order_acq_rel);
 * code: transport/shm/queue/fifo_sender_datapath.h: if (BP_UNLIKELY(!fifo_.publish(claim, header))) continue;
 * code: transport/shm/queue/fifo_receiver_datapath.cc: if (!is_claim(claim, ClaimState::kHeld)) return ClaimEnd::kPassed;
 * code: transport/shm/queue/fifo_receiver_datapath.cc: const bool may_publish = may_write && !group_->has_died(claim.sender);
 * code: transport/shm/queue/fifo_receiver_datapath.cc: if (may_publish && !is_overdue(is_awaited)) return ClaimEnd::kWait;
 * code: transport/shm/queue/fifo_receiver_datapath.cc: const ClaimState state = may_write ? ClaimState::kRetired : ClaimState::kSkipped;
 * code: transport/shm/queue/fifo_receiver_datapath.cc: if (!fifo_.try_end_claim(tail_, claim, state)) return ClaimEnd::kPublished;
 * code: transport/shm/queue/fifo_receiver_datapath.h: if (count > 0) fifo_.set_tail(tail_);
 * code: transport/shm/queue/fifo_receiver_datapath.h: fifo_.free_retired_of(member);
 * code: transport/shm/membership/shm_members.cc: inbox_.forget_writer(member);
 * code: transport/shm/queue/fifo_receiver_datapath.h: drain_until_ = first_unclaimed();
 * code: transport/shm/queue/fifo_receiver_datapath.cc: for (; index - tail_ < fifo_.capacity(); ++index) {
 * code: transport/shm/queue/fifo_receiver_datapath.cc: if (header.kind == SlotKind::kNone) break;
 * code: transport/shm/queue/fifo_receiver_datapath.h: return tail_ >= drain_until_;
 * code: transport/shm/membership/shm_members.cc: if (view_.is_dead() || !inbox_.is_drained()) return;
 * code: transport/shm/endpoint/shm_dispatch.h: endpoint->generation() == group.members().generation(member)
 * code: transport/shm/membership/group_keeper.cc: if (acknowledged < epoch) return false;
 * code: pinned_pool/join/membership.cc: epoch_.store(next_epoch, std::memory_order_release);
 *
 * check: OTHER=1 TIMEOUTS=1   every message may be passed over once
 *
 * Must fail:
 * mutation: NO_HELP             a writer does not move the counter for another writer
 * mutation: FULL_BEHIND_TAIL    a counter one behind the tail counts as a full FIFO
 * mutation: NO_TIMEOUT          the reader waits for the claimer, unless the table says dead
 * mutation: END_BY_STORE        a claim is ended without a check whether it was published
 * mutation: PUBLISH_BY_STORE    a message is published without a check whether its claim was ended
 * mutation: RETIRED_IS_FREE     the slot of a stopped writer is used in the next lap
 * mutation: SKIP_THE_STOPPED    a running writer's claim is ended like that of an ended writer
 * mutation: NO_SWEEP            the retired slots of an ended writer stay retired
 * mutation: NO_RETRY            a message whose claim was ended counts as sent
 * mutation: NO_SLOT_AT_COUNTER  drained up to the counter, without the slot there
 * mutation: NO_DRAIN            an end is acknowledged at once
 * mutation: FORGET_THE_RUNNING  the member slot of a dead writer is reused while it still runs
 * mutation: KNOWN_GENERATION    messages get the generation that was known at the poll
 */

/* How many messages each sends: member 0 in its first generation, in its second, member 1. */
#ifndef FIRST
#define FIRST 1
#endif
#define SECOND 1
#ifndef OTHER
#define OTHER 3
#endif

#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif

#define CAPACITY 2
#define LAPS 4
#define LAP(index) (((index) / CAPACITY + 1) % LAPS)
#define LAP_BEFORE(lap) (((lap) + LAPS - 1) % LAPS)

/* A header is one word: lap, kind, sender. */
#define NOTHING 0
#define CLAIMED 1
#define PUBLISHED 2
#define RETIRED 3
#define SKIPPED 4
#define HEADER(lap, kind, sender) ((lap) << 4 | (kind) << 1 | (sender))
#define LAP_IN(word) ((word) >> 4)
#define KIND_IN(word) ((word) >> 1 & 7)
#define SENDER_IN(word) ((word) & 1)

/* In the segment. */
typedef Slot {
  byte header;
  byte low, high;  /* the payload, in two stores */
};
Slot slots[CAPACITY];
#define SLOT(index) slots[(index) % CAPACITY]
byte claims;
byte tail;
byte acknowledged_epoch;

/* The members table. */
#define JOINING 0
#define ALIVE 1
#define DEAD 2   /* declared dead; it may still run */
#define QUIET 3  /* no instruction of it runs any more */
byte state[2] = ALIVE;
byte table_generation = 1;  /* of member 0 */
byte epoch = 1;

#define HAS_DIED(member) (state[member] == DEAD || state[member] == QUIET)

#ifdef KNOWN_GENERATION
#define GENERATION known_generation
#else
#define GENERATION table_generation
#endif

/* The world. */
bool killed;         /* the process behind member 0, generation 1 */
bool has_stopped;    /* no instruction of it runs any more */
byte running = 2;    /* writers */
bool owner_is_done;
bool pool_is_gone;   /* the owner is dead; the table does not change */

/* What the properties need: by member and generation (1 and 2 of member 0; 1 of member 1). */
#define WHO(member, generation) ((member) * 2 + (generation) - 1)
#define PAYLOAD(generation, seq) ((generation) << 4 | (seq))
byte published[3];
byte delivered[3];
byte timeouts = TIMEOUTS;  /* how often the reader passes over a running writer */
byte ignored;  /* of member 0, generation 1, after its end was acknowledged */

/* Unsigned: a counter that looks older than the tail looks full as well. */
#ifdef FULL_BEHIND_TAIL
#define IS_FULL (index < known_tail || index > known_tail + CAPACITY - 1)
#else
#define IS_FULL (index + 1 < known_tail || index > known_tail + CAPACITY - 1)
#endif

proctype Writer(byte self; byte generation; byte messages) {
  byte known_tail, index, word, seq;
  {
    do
    :: seq == messages -> break
    :: else ->
try_claim:
      atomic {
        index = claims;
        if
        :: IS_FULL -> goto look_at_tail
        :: else -> goto look_at_slot
        fi
      }
look_at_tail:
      atomic {
        known_tail = tail;
        if
        :: IS_FULL
        :: else -> goto look_at_slot
        fi
      }
      /* `again`: the caller tries once more; that can only succeed when something has changed. */
      atomic { claims != index || tail != known_tail -> goto try_claim }
look_at_slot:
      atomic {
        word = SLOT(index).header;
        if
        :: LAP_IN(word) == LAP(index) -> goto help
#ifndef RETIRED_IS_FREE
        :: LAP_IN(word) == LAP_BEFORE(LAP(index)) && KIND_IN(word) == RETIRED -> goto pass_on
        :: LAP_IN(word) == LAP_BEFORE(LAP(index)) && KIND_IN(word) != RETIRED -> goto claim
#else
        :: LAP_IN(word) == LAP_BEFORE(LAP(index)) -> goto claim
#endif
        :: else
        fi
      }
      atomic { claims != index -> goto try_claim }  /* else this waits for ever */
pass_on:
      atomic {
        if
        :: SLOT(index).header == word ->
          SLOT(index).header = HEADER(LAP(index), RETIRED, SENDER_IN(word))
        :: else
        fi;
        word = 0;
        goto try_claim
      }
help:
#ifdef NO_HELP
      atomic { claims != index -> goto try_claim }
#else
      atomic {
        if
        :: claims == index -> claims = index + 1
        :: else
        fi;
        goto try_claim
      }
#endif
claim:
      atomic {
        if
        :: SLOT(index).header == word ->
          SLOT(index).header = HEADER(LAP(index), CLAIMED, self);
          word = 0
        :: else -> word = 0; goto try_claim
        fi
      }
      atomic {
        if
        :: claims == index -> claims = index + 1
        :: else
        fi
      }
      SLOT(index).low = PAYLOAD(generation, seq + 1);
      SLOT(index).high = PAYLOAD(generation, seq + 1);
      atomic {
        if
#ifdef PUBLISH_BY_STORE
        :: true ->
#else
        :: SLOT(index).header == HEADER(LAP(index), CLAIMED, self) ->
#endif
          SLOT(index).header = HEADER(LAP(index), PUBLISHED, self);
          index = 0;
          seq++;
          published[WHO(self, generation)] = seq;
          goto sent
#ifndef PUBLISH_BY_STORE
        :: else
#endif
        fi
      }
      /* free_retired, in whatever lap the slot is by now */
      atomic {
        if
        :: KIND_IN(SLOT(index).header) == RETIRED && SENDER_IN(SLOT(index).header) == self ->
          SLOT(index).header = HEADER(LAP_IN(SLOT(index).header), SKIPPED, self)
        :: else
        fi;
        index = 0;
#ifdef NO_RETRY
        seq++;
        published[WHO(self, generation)] = seq;
#else
        if
        :: self == 0 && generation == 1 && HAS_DIED(0) -> goto gives_up  /* known at next poll */
        :: else -> goto try_claim
        fi
#endif
      }
sent: skip
    od;
gives_up: skip
  } unless { self == 0 && generation == 1 && killed };
  atomic {
    running--;
    if
    :: self == 0 && generation == 1 -> has_stopped = true
    :: else
    fi
  }
}

#define IS_DUE(word) (LAP_IN(word) == LAP(next) && KIND_IN(word) != NOTHING)
#define HAS_ENDED(member) (member == 0 && has_stopped && table_generation == 1)
#ifdef NO_TIMEOUT
#define MAY_END(member) HAS_DIED(member)
#else
#define MAY_END(member) (HAS_DIED(member) || timeouts > 0 || HAS_ENDED(member))
#endif
#ifdef SKIP_THE_STOPPED
#define END_OF(member) SKIPPED
#else
#define END_OF(member) (state[member] == QUIET -> SKIPPED : RETIRED)
#endif
/* Whether a poll would do anything. The reader waits for that instead of polling in vain. */
#define NEXT_WORD SLOT(next).header
#define CAN_READ \
  (IS_DUE(NEXT_WORD) && (KIND_IN(NEXT_WORD) != CLAIMED || MAY_END(SENDER_IN(NEXT_WORD))))
#define CAN_ACKNOWLEDGE (epoch_to_acknowledge != 0 && next >= drain_until)

active proctype Reader() {
  byte next, seen_epoch = 1, drain_until, epoch_to_acknowledge, known_generation = 1;
  byte word, now, from, low, i;
  bool knows_dead, buried;
  do
  :: atomic {
       owner_is_done && running == 0 && epoch == seen_epoch && epoch_to_acknowledge == 0 &&
       !IS_DUE(NEXT_WORD) -> break
     }
  :: epoch != seen_epoch || CAN_READ || CAN_ACKNOWLEDGE ->
    /* follow_members */
    if
    :: atomic { epoch != seen_epoch -> now = epoch; knows_dead = HAS_DIED(0) }
#ifndef NO_SWEEP
      /* Slot by slot, because writers pass slots on in the meantime. */
      if
      :: atomic { state[0] == QUIET -> i = 0 }
        do
        :: atomic {
             i < CAPACITY ->
             if
             :: KIND_IN(slots[i].header) == RETIRED && SENDER_IN(slots[i].header) == 0 ->
               slots[i].header = HEADER(LAP_IN(slots[i].header), SKIPPED, 0)
             :: else
             fi;
             i++
           }
        :: atomic { i == CAPACITY -> i = 0; break }
        od
      :: atomic { state[0] != QUIET }
      fi;
#endif
#ifdef NO_DRAIN
      drain_until = 0;
#elif defined(NO_SLOT_AT_COUNTER)
      drain_until = claims;
#else
      /* In one step, because the claims of dead writers do not change any more. */
      atomic {
        drain_until = next;
        do
        :: drain_until < next + CAPACITY &&
           LAP_IN(SLOT(drain_until).header) == LAP(drain_until) -> drain_until++
        :: else -> break
        od
      }
#endif
      atomic {
        known_generation = table_generation;
        seen_epoch = now;
        epoch_to_acknowledge = now;
        now = 0
      }
    :: atomic { epoch == seen_epoch }
    fi;
    /* poll_fifo, with any budget */
poll_fifo:
      atomic {
        word = NEXT_WORD;
        if
        :: !IS_DUE(word) -> goto polled
        :: IS_DUE(word) && (KIND_IN(word) == RETIRED || KIND_IN(word) == SKIPPED) -> goto passed
        :: IS_DUE(word) && KIND_IN(word) == CLAIMED
        :: IS_DUE(word) && KIND_IN(word) == PUBLISHED -> goto read
        fi
      }
      atomic {
        if
        :: MAY_END(SENDER_IN(word)) -> low = END_OF(SENDER_IN(word))
        :: !HAS_DIED(SENDER_IN(word)) -> low = 0; goto polled  /* the reader waits for it */
        fi
      }
      atomic {
        if
#ifndef END_BY_STORE
        :: NEXT_WORD != word -> word = NEXT_WORD; low = 0
        :: NEXT_WORD == word ->
#else
        :: true ->
#endif
          NEXT_WORD = HEADER(LAP_IN(word), low, SENDER_IN(word));
          if
          :: !HAS_DIED(SENDER_IN(word)) && !HAS_ENDED(SENDER_IN(word)) -> timeouts--
          :: else
          fi;
          goto passed
        fi
      }
read:
      from = SENDER_IN(word);
      if
      :: atomic { from == 0 -> from = WHO(0, GENERATION) }
      :: atomic { else -> from = WHO(1, 1) }
      fi;
      low = SLOT(next).low;
      atomic {
        assert(SLOT(next).high == low);
        if
        :: from == WHO(0, 1) && buried -> ignored++
        :: else ->
          assert(low == PAYLOAD(from + 1 - from / 2 * 2, delivered[from] + 1));
          assert(delivered[from] < published[from]);
          delivered[from]++
        fi
      }
passed:
      atomic {
        word = 0;
        from = 0;
        low = 0;
        next++
      }
      if
      :: goto poll_fifo
      :: skip
      fi;
polled:
    atomic {
      word = 0;
      if
      :: tail != next -> tail = next
      :: else
      fi
    }
    atomic {
      if
      :: CAN_ACKNOWLEDGE ->
        acknowledged_epoch = epoch_to_acknowledge;
        epoch_to_acknowledge = 0;
        drain_until = 0;
        buried = buried || knows_dead
      :: else
      fi
    }
  od;
  assert(delivered[0] + ignored == published[0]);
  assert(delivered[1] == published[1]);
  assert(delivered[2] == published[2] && published[2] == OTHER);
  assert(pool_is_gone || (KIND_IN(slots[0].header) != RETIRED && KIND_IN(slots[1].header) != RETIRED))
}

active proctype Owner() {
  byte changed_epoch;
  if
  :: skip  /* nobody dies */
  :: killed = true; pool_is_gone = true
  ::
    /* Its connection is closed, but the process may still run. */
    state[0] = DEAD;
    atomic { epoch++; changed_epoch = epoch }
#ifdef FORGET_THE_RUNNING
    acknowledged_epoch >= changed_epoch;
    atomic { changed_epoch = 0; table_generation = 2; state[0] = JOINING }
    epoch++;
    state[0] = ALIVE;
    epoch++;
    atomic { running++; run Writer(0, 2, SECOND) }
    killed = true;
#else
    killed = true;
    has_stopped;
    state[0] = QUIET;
    atomic { epoch++; changed_epoch = epoch }
    acknowledged_epoch >= changed_epoch;  /* is_forgotten */
    atomic { changed_epoch = 0; table_generation = 2; state[0] = JOINING }
    epoch++;
    state[0] = ALIVE;
    epoch++;
    atomic { running++; run Writer(0, 2, SECOND) }
#endif
  fi;
  owner_is_done = true
}

init {
  atomic { run Writer(0, 1, FIRST); run Writer(1, 1, OTHER) }
}
