/* One pair that moves between the receiver's FIFO and fast boxes, and the death of its sender.
 *
 * A sender, which may be killed at any step; a receiver, which grants a box and requests it back at
 * any time; and another sender, which writes into the same FIFO, so that the FIFO's numbers are not
 * those of the pair. The FIFO is assumed to be correct (inbound_fifo.pml): claiming and publishing
 * is one step. Control messages to the sender come in order, as through its own FIFO.
 *
 * Properties: the messages of the pair arrive in order, whichever queue each one uses; no published
 * message is lost, not even after the sender's death; a box that was requested back comes back,
 * although its sender sends nothing more; no process waits for ever.
 *
 * Stands for:
 * code: transport/shm/queue/outgoing_path_datapath.h: if (BP_UNLIKELY(must_settle_)) settle();
 * code: transport/shm/queue/fifo_sender_datapath.h: next_index_ = claim.index + 1;
 * code: transport/shm/queue/fifo_sender_datapath.h: return fifo_.tail() >= next_index_;
 * code: transport/shm/queue/outgoing_path_datapath.cc: if (!fifo_.is_drained()) return;
 * code: transport/shm/queue/outgoing_path_datapath.cc: if (queue_ == QueueKind::kFifo || box_.is_drained()) {
 * code: transport/shm/queue/outgoing_path_datapath.cc: if (must_return_box_) return;
 * code: transport/shm/queue/inbound_boxes_datapath.cc: idle->acknowledge();
 * code: transport/shm/queue/inbound_boxes_datapath.cc: if (!path.is_open() || path.box_index() != box) return;
 * code: transport/shm/queue/inbound_boxes_datapath.cc: if (!from.path().is_open()) return nullptr;
 * code: transport/shm/queue/inbound_boxes_datapath.cc: if (group_->segment().writes_no_more(member)) set_free(
 * code: transport/shm/endpoint/shm_provider.cc: if (endpoint.path().must_return_box()) endpoint.path().settle();
 * code: transport/shm/queue/box_receiver_datapath.h: if (is_wanted_back_) consumer_.acknowledge();
 * code: transport/shm/queue/box_receiver_datapath.h: poll(dispatch, kFastBoxSlotCountMax);
 * code: transport/messages/fast_box_datapath.h: consumed_ - acknowledged_ > slot_mask_ / 4
 *
 * Must fail:
 * mutation: NO_WAIT_FOR_FIFO    moves to the box while the FIFO still holds messages of the pair
 * mutation: NO_WAIT_FOR_BOX     moves back to the FIFO while the box still holds messages
 * mutation: NO_DRAIN            the dead sender's box is dropped with its messages
 * mutation: CUT_OFF_THE_DEAD    a box that was dropped at the death counts as never granted
 * mutation: LAZY_WHEN_WANTED    the receiver does not acknowledge that a wanted box is empty
 */

#define MESSAGES 4
#define GRANTS 2
#define CAPACITY 2   /* of the FIFO */
#define SLOTS 2      /* of the box */
#define LAZY 1       /* messages that may be consumed and not acknowledged */

#define OTHERS 100
#define CLOSED 101   /* kBoxClosed */
byte fifo[CAPACITY];
byte claims, tail;
#define HAS_ROOM (claims - tail < CAPACITY)

byte box[SLOTS];
byte produced;       /* published messages, as the laps show */
byte acknowledged;   /* the ack line */

#define GRANTED 1    /* kBoxGranted */
#define WANTED 2     /* kBoxWanted */
chan control = [3] of { byte };

bool killed, is_dead, all_are_sent;
byte sent, delivered;

active proctype Other() {
  atomic { HAS_ROOM -> fifo[claims % CAPACITY] = OTHERS; claims++ }
}

/* The sender. */

#ifdef NO_WAIT_FOR_BOX
#define CAN_CLOSE HAS_ROOM
#else
#define CAN_CLOSE ((!in_box || acknowledged == produced) && HAS_ROOM)
#endif

inline settle() {
  if
  :: !in_box && has_box && !must_return ->
#ifdef NO_WAIT_FOR_FIFO
    in_box = true
#else
    atomic {
      if
      :: tail >= next_fifo_index -> in_box = true
      :: else
      fi
    }
#endif
  :: must_return ->
    atomic {
      if
      :: CAN_CLOSE ->
        fifo[claims % CAPACITY] = CLOSED;
        claims++;
        next_fifo_index = claims;
        in_box = false;
        has_box = false;
        must_return = false
      :: else
      fi
    }
  :: else
  fi
}

#define CAN_SEND (in_box -> produced - acknowledged < SLOTS : HAS_ROOM)
#define CAN_SETTLE \
  (must_return -> CAN_CLOSE : !in_box && has_box && tail >= next_fifo_index)

active proctype Sender() {
  bool in_box, has_box, must_return;
  byte next_fifo_index, what;
  {
end:
    do
    :: sent < MESSAGES && (CAN_SEND || CAN_SETTLE) ->  /* otherwise the send returns `again` */
      if
      :: !in_box || must_return -> settle()
      :: else
      fi;
      if
      :: atomic {
           !in_box && HAS_ROOM ->
           sent++;
           fifo[claims % CAPACITY] = sent;
           claims++;
           next_fifo_index = claims;
           all_are_sent = (sent == MESSAGES)
         }
      :: atomic {
           in_box && produced - acknowledged < SLOTS ->
           sent++;
           box[produced % SLOTS] = sent;
           produced++;
           all_are_sent = (sent == MESSAGES)
         }
      :: !CAN_SEND
      fi
    :: control ? what ->
      if
      :: what == GRANTED -> has_box = true
      :: what == WANTED && has_box && !must_return -> must_return = true
      :: else
      fi;
      what = 0;
      settle()
    :: must_return && CAN_SETTLE -> settle()  /* settle_returns */
    od
  } unless { killed };
  is_dead = true  /* the owner's notice: no instruction of it runs any more */
}

active proctype Death() {
  if
  :: skip
  :: killed = true
  fi
}

/* The receiver. */

inline deliver(seq) {
  atomic {
    assert(!is_cut_off);
    assert(seq == delivered + 1);
    delivered = seq
  }
}

inline drop_box() {
  atomic { gave_box = false; is_wanted_back = false; consumed = 0; consumer_acknowledged = 0 }
}

inline poll_box() {
  do
  :: atomic { gave_box && produced != consumed -> word = box[consumed % SLOTS] }
    deliver(word);
    atomic {
      word = 0;
      consumed++;
      if
      :: consumed - consumer_acknowledged > LAZY ->
        acknowledged = consumed;
        consumer_acknowledged = consumed
      :: else
      fi
    }
  :: atomic { !gave_box || produced == consumed -> break }
  od;
#ifndef LAZY_WHEN_WANTED
  atomic {
    if
    :: gave_box && is_wanted_back -> acknowledged = consumed; consumer_acknowledged = consumed
    :: else
    fi
  }
#endif
}

#define IS_KNOWN (is_dead == knows_death)
#define IS_IDLE (IS_KNOWN && next == claims && (!gave_box || produced == consumed))

active proctype Receiver() {
  byte next, consumed, consumer_acknowledged, word, grants;
  bool gave_box, is_wanted_back, knows_death, is_cut_off;
  do
  :: atomic {
       IS_IDLE && (knows_death || (all_are_sent && !is_wanted_back && empty(control))) -> break
     }
  :: !IS_IDLE ->
    /* follow_members: drain */
    if
    :: is_dead && !knows_death ->
#ifndef NO_DRAIN
      poll_box();
#endif
      drop_box();
      knows_death = true
    :: else
    fi;
    poll_box();
    /* FifoReceiver::poll, with any budget */
    do
    :: atomic { next < claims -> word = fifo[next % CAPACITY] }
      if
      :: word == OTHERS
      :: word == CLOSED ->
        if
        :: gave_box -> drop_box()
#ifdef CUT_OFF_THE_DEAD
        :: else -> is_cut_off = true
#else
        :: else -> assert(knows_death)
#endif
        fi
      :: else ->
        deliver(word);
        /* grant */
        if
        :: atomic {
             !gave_box && !knows_death && grants < GRANTS && nfull(control) ->
             grants++;
             produced = 0;
             acknowledged = 0;
             gave_box = true;
             control ! GRANTED
           }
        :: skip
        fi
      fi;
      atomic { word = 0; next++ }
    :: break
    od;
    tail = next
  :: atomic {
       /* ask_for_idle_box */
       gave_box && !is_wanted_back && !knows_death && nfull(control) ->
       acknowledged = consumed;
       consumer_acknowledged = consumed;
       is_wanted_back = true;
       control ! WANTED
     }
  od;
  assert(delivered == sent)
}
