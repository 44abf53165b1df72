/* Loans: one lender with one entry in its table, and a borrower that may be killed at any step.
 *
 * Marks count modulo four; the lender writes no byte that borrowers write. Each message with a loan
 * goes through a queue that loses nothing (inbound_fifo.pml).
 *
 * Properties: each block is returned exactly once, and never while the borrower can still read it;
 * all are returned at the end (otherwise an invalid end state for spin).
 *
 * Stands for:
 * code: transport/shm/endpoint/loan_table_datapath.h: const auto mark = static_cast<uint8_t>(record.mark + 1);
 * code: transport/shm/endpoint/loan_table_datapath.h: return returned_[loan].load(std::memory_order_acquire) == book_[loan].mark;
 * code: transport/shm/endpoint/loan_table_datapath.h: if (book_[loan].member != member) return true;
 * code: transport/shm/endpoint/loan_table_datapath.h: --book_[loan].mark;
 * code: transport/shm/endpoint/borrower_datapath.cc: returned_loans(loan.lender)[loan.loan].store(loan.mark,
 * code: transport/shm/membership/shm_members.cc: if (now.state == MemberState::kQuiet) {
 *
 * Must fail:
 * mutation: SAME_MARK           every use of the entry has the same mark
 * mutation: CANCEL_TAKES_MARK  a loan whose message was never sent uses up its mark
 * mutation: RETURN_AT_DEATH     the dead borrower's loans are returned before its rings are quiet
 * mutation: NEVER_FROM_DEAD     the dead borrower's loans are not returned
 */

#define LOANS 3
#define MARKS 4

byte returned_mark;   /* the entry's byte in the segment; only borrowers write it */
chan queue = [LOANS] of { byte };

bool killed, is_dead, is_quiet;
byte readers;         /* of the block: the borrower, and the rings of its process */
byte lent, back;

active proctype Lender() {
  byte mark, cancelled;
  bool is_out;
  do
  :: atomic { !is_out && (lent == LOANS || is_quiet) -> break }
  :: atomic {
       !is_out && lent < LOANS && !is_dead ->
#ifdef SAME_MARK
       mark = 1;
#else
       mark = (mark + 1) % MARKS;
#endif
       is_out = true;
       lent++;
       queue ! mark
     }
  :: atomic {
       /* cancel: there was no room for its message */
       !is_out && lent < LOANS && cancelled < MARKS && !is_dead ->
#ifdef CANCEL_TAKES_MARK
       mark = (mark + 1) % MARKS;
#endif
       cancelled++
     }
  :: atomic {
       /* collect */
       is_out && returned_mark == mark ->
       assert(readers == 0 && empty(queue));
       is_out = false;
       back++
     }
#ifndef NEVER_FROM_DEAD
  :: atomic {
       /* collect_from */
#ifdef RETURN_AT_DEATH
       is_out && is_dead ->
#else
       is_out && is_quiet ->
#endif
       assert(readers == 0);
       is_out = false;
       back++
     }
#endif
  od;
  assert(back == lent)
}

active proctype Borrower() {
  byte mark;
  {
end:
    do
    :: atomic { queue ? mark -> readers++ }
      skip;  /* it reads */
      atomic { readers--; returned_mark = mark; mark = 0 }
    od
  } unless { killed };
  is_dead = true;
  /* Until its rings are torn down, the kernel may still read for it. */
  atomic { readers = 0; is_quiet = true }
}

active proctype Death() {
  if
  :: skip
  :: killed = true
  fi
}
