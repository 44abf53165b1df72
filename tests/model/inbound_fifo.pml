/* The inbound FIFO of a member, its reader, and the death of a writer.
 *
 * Two writers, one of which may be killed between any two of its steps, a reader, and the owner of
 * the pool, which sees the death and gives the place to a new process once the reader has
 * acknowledged; or which dies itself, before it could say so. Two slots; laps count modulo four.
 * Loads and stores are sequentially consistent: on x86 nothing here depends on a store being passed
 * by a later load.
 *
 * Properties: what was published is delivered once, whole, in each writer's order, and as that
 * generation's whose it is; nobody waits for ever (an invalid end state for spin): neither the
 * reader for a dead writer's slot nor a writer for room; the place is not given out while the
 * reader may still meet a slot of the dead one.
 *
 * Left out: the quiet state (the owner waits here only for the acknowledgement of the death, which
 * is less than it does), and the limit of attempts, which honest writers do not reach. Time, which
 * decides when the owner is dead (is_abandoned), is taken to be longer than a living writer needs.
 *
 * Stands for:
 * code: transport/shm/inbound_fifo_datapath.h: index + 1 - *known_tail > mask_ + 1
 * code: transport/shm/inbound_fifo_datapath.h: *known_tail = tail_->load(std::memory_order_acquire);
 * code: transport/shm/inbound_fifo_datapath.h: if (slot_lap(word) == lap) {
 * code: transport/shm/inbound_fifo_datapath.h: if (slot_lap(word) != lap_before(lap)) continue;
 * code: transport/shm/inbound_fifo_datapath.h: if (!slot.header.compare_exchange_strong(word, claimed,
 * code: transport/shm/inbound_fifo_datapath.h: claims_->compare_exchange_strong(index, own + 1,
 * code: transport/shm/shm_receive_datapath.cc: if (is_peer(header.sender) && !has_died(header.sender) && !is_abandoned()) {
 * code: transport/shm/shm_receive_datapath.cc: fifo_.peek(tail_, &header);
 * code: transport/shm/shm_receive_datapath.cc: if (count > 0) fifo_.set_tail(tail_);
 * code: transport/shm/shm_members.cc: drain_until_ = first_unclaimed();
 * code: transport/shm/shm_members.cc: for (; index - tail_ < fifo_.capacity(); ++index) {
 * code: transport/shm/shm_members.cc: if (header.kind == SlotKind::kNone) break;
 * code: transport/shm/shm_members.cc: if (kind_ == GroupKind::kLazy && tail_ < drain_until_) return;
 * code: transport/shm/shm_members.cc: return now_ns >= abandoned_at_ns_;
 * code: transport/shm/shm_provider.cc: endpoint->generation_ == members_->generation(member)
 * code: pinned_pool/membership.cc: epoch_.store(next_epoch, std::memory_order_release);
 *
 * Must fail:
 * mutation: NO_HELP             a writer does not move the counter for a dead one
 * mutation: FULL_BEHIND_TAIL    a counter one behind the tail counts as a full FIFO
 * mutation: NO_SECOND_PEEK      the dead one's slot is passed over without another look
 * mutation: NO_DEATH            the reader waits for whoever has claimed, alive or not
 * mutation: NO_END_OF_WAIT      after the owner's death too the reader waits for who has claimed
 * mutation: NO_WAIT_AFTER_END   after the owner's death it waits for nobody
 * mutation: NO_SLOT_AT_COUNTER  drained up to the counter, without the slot there
 * mutation: NO_DRAIN            a death is acknowledged at once
 * mutation: NOTICE_BEFORE_STOP  dead to the others while its last instruction still runs
 * mutation: KNOWN_GENERATION    messages are those of the generation that was known at the poll
 */

/* How many messages each sends: member 0 in its first generation, in its second, member 1. */
#ifndef FIRST
#define FIRST 1
#endif
#define SECOND 1
#ifndef OTHER
#define OTHER 3
#endif

#define CAPACITY 2
#define LAPS 4
#define LAP(index) (((index) / CAPACITY + 1) % LAPS)
#define LAP_BEFORE(lap) (((lap) + LAPS - 1) % LAPS)

/* A header is one word: lap, kind, sender. */
#define NOTHING 0
#define CLAIMED 1
#define PUBLISHED 2
#define HEADER(lap, kind, sender) ((lap) << 3 | (kind) << 1 | (sender))
#define LAP_IN(word) ((word) >> 3)
#define KIND_IN(word) ((word) >> 1 & 3)
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
#define DEAD 2
#define FREE 3
byte state[2] = ALIVE;
byte table_generation = 1;  /* of member 0 */
byte epoch = 1;

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
bool pool_is_gone;   /* the owner is dead: the table says nothing new */

/* What the properties need: by member and generation (1 and 2 of member 0; 1 of member 1). */
#define WHO(member, generation) ((member) * 2 + (generation) - 1)
#define PAYLOAD(generation, seq) ((generation) << 4 | (seq))
byte published[3];
byte delivered[3];

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
        :: LAP_IN(word) == LAP_BEFORE(LAP(index)) -> goto claim
        :: else
        fi
      }
      atomic { claims != index -> goto try_claim }  /* as it must be: else this waits for ever */
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
        SLOT(index).header = HEADER(LAP(index), PUBLISHED, self);
        index = 0;
        seq++;
        published[WHO(self, generation)] = seq
      }
    od
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
#ifdef NO_DEATH
#define HAS_DIED(member) false
#else
#define HAS_DIED(member) \
  ((state[member] != ALIVE && state[member] != JOINING) || IS_ABANDONED(member))
#endif
#if defined(NO_END_OF_WAIT)
#define IS_ABANDONED(member) false
#elif defined(NO_WAIT_AFTER_END)
#define IS_ABANDONED(member) pool_is_gone
#else
#define IS_ABANDONED(member) (pool_is_gone && member == 0 && has_stopped)
#endif
/* Whether a poll would do anything. The reader waits for that, in place of polling in vain. */
#define NEXT_WORD SLOT(next).header
#define CAN_READ \
  (IS_DUE(NEXT_WORD) && (KIND_IN(NEXT_WORD) != CLAIMED || HAS_DIED(SENDER_IN(NEXT_WORD))))
#define CAN_ACKNOWLEDGE (epoch_to_acknowledge != 0 && next >= drain_until)

active proctype Reader() {
  byte next, seen_epoch = 1, drain_until, epoch_to_acknowledge, known_generation = 1;
  byte word, now, from, low;
  do
  :: atomic {
       owner_is_done && running == 0 && epoch == seen_epoch && epoch_to_acknowledge == 0 &&
       !IS_DUE(NEXT_WORD) -> break
     }
  :: epoch != seen_epoch || CAN_READ || CAN_ACKNOWLEDGE ->
    /* follow_members */
    if
    :: atomic { epoch != seen_epoch -> now = epoch }
#ifdef NO_DRAIN
      drain_until = 0;
#elif defined(NO_SLOT_AT_COUNTER)
      drain_until = claims;
#else
      /* In one step: what the dead have taken does not change any more. */
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
        :: IS_DUE(word) && KIND_IN(word) == CLAIMED
        :: else -> goto read
        fi
      }
      atomic {
        if
        :: !HAS_DIED(SENDER_IN(word)) -> goto polled
        :: else
        fi
      }
#ifndef NO_SECOND_PEEK
      word = NEXT_WORD;
#endif
      atomic {
        if
        :: KIND_IN(word) == CLAIMED -> goto passed  /* torn */
        :: else
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
        assert(low == PAYLOAD(from + 1 - from / 2 * 2, delivered[from] + 1));
        assert(delivered[from] < published[from]);
        delivered[from]++
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
        drain_until = 0
      :: else
      fi
    }
  od;
  assert(delivered[0] == published[0]);
  assert(delivered[1] == published[1]);
  assert(delivered[2] == published[2] && published[2] == OTHER)
}

active proctype Owner() {
  byte changed_epoch;
  if
  :: skip  /* nobody dies */
  :: killed = true; pool_is_gone = true
  ::
#ifndef NOTICE_BEFORE_STOP
    killed = true;
    has_stopped;
#endif
    state[0] = DEAD;
    atomic { epoch++; changed_epoch = epoch }
#ifdef NOTICE_BEFORE_STOP
    killed = true;
#endif
    acknowledged_epoch >= changed_epoch;  /* is_forgotten */
    atomic { changed_epoch = 0; table_generation = 2; state[0] = JOINING }
    epoch++;
    state[0] = ALIVE;
    epoch++;
    atomic { running++; run Writer(0, 2, SECOND) }
  fi;
  owner_is_done = true
}

init {
  atomic { run Writer(0, 1, FIRST); run Writer(1, 1, OTHER) }
}
