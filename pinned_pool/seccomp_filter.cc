#include "pinned_pool/seccomp_filter.h"

#include <array>
#include <cerrno>
#include <cstddef>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint32_t kX32Bit = 0x4000'0000;  // __X32_SYSCALL_BIT
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

constexpr uint32_t low_half(unsigned argument) {  // x86-64 is little-endian
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + argument * 8);
}
constexpr uint32_t high_half(unsigned argument) { return low_half(argument) + 4; }

// Writes the program. Jumps of a classic filter go forward only, by at most 255 instructions. So
// each call has its own block, which ends in an answer and which other calls skip as a whole.
class Assembler {
 public:
  Assembler(uint64_t begin, uint64_t end) noexcept : begin_(begin), end_(end) {}

  void add(uint16_t code, uint32_t k, uint8_t if_true = 0, uint8_t if_false = 0) noexcept {
    BP_ASSERT(count_ < program_.size());
    program_[count_++] = {code, if_true, if_false, k};
  }
  void load(uint32_t offset) noexcept { add(BPF_LD | BPF_W | BPF_ABS, offset); }
  void answer(uint32_t what) noexcept { add(BPF_RET | BPF_K, what); }

  void begin_call(long number) noexcept {
    load(offsetof(seccomp_data, nr));
    block_ = count_;
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number));
  }
  void end_call(uint32_t what) noexcept {
    answer(what);
    BP_ASSERT(count_ - block_ - 1 <= 255);
    program_[block_].jf = static_cast<uint8_t>(count_ - block_ - 1);
  }

  // Refuses if [address, address + bytes) overlaps the pool: address < end and address + bytes >
  // begin. Classic BPF has words of 32 bits, so both comparisons work on halves.
  void refuse_overlap(unsigned address, unsigned bytes) noexcept {
    constexpr uint32_t kLowSum = 0;  // a word of the filter's scratch memory
    // Jumps to `out` are filled in once their distance is known.
    std::array<size_t, 8> to_out_if_true{}, to_out_if_false{};
    size_t true_count = 0, false_count = 0;
    const auto out_if = [&](uint16_t test, uint32_t k, uint8_t if_false) {
      to_out_if_true[true_count++] = count_;
      add(static_cast<uint16_t>(BPF_JMP | test | BPF_K), k, 0, if_false);
    };
    const auto out_unless = [&](uint16_t test, uint32_t k, uint8_t if_true) {
      to_out_if_false[false_count++] = count_;
      add(static_cast<uint16_t>(BPF_JMP | test | BPF_K), k, if_true, 0);
    };
    // address >= end: out.
    load(high_half(address));
    out_if(BPF_JGT, high(end_), 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, high(end_), 0, 2);  // below: no further comparison
    load(low_half(address));
    out_if(BPF_JGE, low(end_), 0);
    // The sum, with the carry of its low half.
    load(low_half(bytes));
    add(BPF_MISC | BPF_TAX, 0);
    load(low_half(address));
    add(BPF_ALU | BPF_ADD | BPF_X, 0);
    add(BPF_ST, kLowSum);
    add(BPF_JMP | BPF_JGE | BPF_X, 0, 2, 0);  // sum >= bytes: it did not wrap
    add(BPF_LD | BPF_IMM, 1);
    add(BPF_JMP | BPF_JA, 1);
    add(BPF_LD | BPF_IMM, 0);
    add(BPF_MISC | BPF_TAX, 0);
    load(high_half(address));
    add(BPF_ALU | BPF_ADD | BPF_X, 0);
    add(BPF_MISC | BPF_TAX, 0);
    load(high_half(bytes));
    add(BPF_ALU | BPF_ADD | BPF_X, 0);
    // address + bytes <= begin: out. (A sum beyond 64 bits is the kernel's to refuse.)
    add(BPF_JMP | BPF_JGT | BPF_K, high(begin_), 3, 0);  // above: refuse
    out_unless(BPF_JEQ, high(begin_), 0);                // below: out
    add(BPF_LD | BPF_MEM, kLowSum);
    out_unless(BPF_JGT, low(begin_), 0);
    answer(kRefuse);
    for (size_t i = 0; i < true_count; ++i) {
      program_[to_out_if_true[i]].jt = static_cast<uint8_t>(count_ - to_out_if_true[i] - 1);
    }
    for (size_t i = 0; i < false_count; ++i) {
      program_[to_out_if_false[i]].jf = static_cast<uint8_t>(count_ - to_out_if_false[i] - 1);
    }
  }

  // Lets the call pass unless all of `flags` are set in the argument.
  void pass_without(unsigned argument, uint32_t flags) noexcept {
    load(low_half(argument));
    add(BPF_ALU | BPF_AND | BPF_K, flags);
    add(BPF_JMP | BPF_JEQ | BPF_K, flags, 1, 0);
    answer(SECCOMP_RET_ALLOW);
  }

  sock_fprog program() noexcept { return {static_cast<unsigned short>(count_), program_.data()}; }

 private:
  static constexpr uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
  static constexpr uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

  uint64_t begin_;
  uint64_t end_;
  size_t count_ = 0;
  size_t block_ = 0;
  std::array<sock_filter, 512> program_{};
};

void assemble(Assembler& filter) noexcept {
  // Lets calls of 32-bit programs pass: they cannot name the pool, which lies above 4 GiB.
  filter.load(offsetof(seccomp_data, arch));
  filter.add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
  filter.answer(SECCOMP_RET_ALLOW);
  filter.load(offsetof(seccomp_data, nr));
  filter.add(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1);
  filter.answer(kRefuse);

  // Calls whose first two arguments are an address and a number of bytes.
  for (const long number : {SYS_munmap, SYS_mprotect, SYS_pkey_mprotect, SYS_remap_file_pages,
                            SYS_munlock, SYS_mbind}) {
    filter.begin_call(number);
    filter.refuse_overlap(0, 1);
    filter.end_call(SECCOMP_RET_ALLOW);
  }
  filter.begin_call(SYS_madvise);
  // Advice on how memory will be used passes; all other advice drops, moves or bars memory.
  filter.load(low_half(2));
  constexpr uint32_t kHarmless[] = {MADV_NORMAL,
                                    MADV_RANDOM,
                                    MADV_SEQUENTIAL,
                                    MADV_WILLNEED,
                                    MADV_DODUMP,
                                    MADV_DONTDUMP,
                                    22 /* MADV_POPULATE_READ */,
                                    23 /* MADV_POPULATE_WRITE */};
  for (size_t i = 0; i < std::size(kHarmless); ++i) {
    const auto to_pass = static_cast<uint8_t>(std::size(kHarmless) - i);
    const bool is_last = i + 1 == std::size(kHarmless);
    filter.add(BPF_JMP | BPF_JEQ | BPF_K, kHarmless[i], is_last ? 0 : to_pass - 1, is_last ? 1 : 0);
  }
  filter.answer(SECCOMP_RET_ALLOW);
  filter.refuse_overlap(0, 1);
  filter.end_call(SECCOMP_RET_ALLOW);

  filter.begin_call(SYS_mremap);
  filter.refuse_overlap(0, 1);
  filter.pass_without(3, MREMAP_FIXED);
  filter.refuse_overlap(4, 2);
  filter.end_call(SECCOMP_RET_ALLOW);

  filter.begin_call(SYS_mmap);
  filter.pass_without(3, MAP_FIXED);
  filter.refuse_overlap(0, 1);
  filter.end_call(SECCOMP_RET_ALLOW);

  filter.begin_call(SYS_shmat);
  filter.pass_without(2, SHM_REMAP);
  filter.end_call(kRefuse);

  for (const long number :
       {SYS_munlockall, SYS_move_pages, SYS_migrate_pages, SYS_process_madvise}) {
    filter.begin_call(number);
    filter.end_call(kRefuse);
  }
  filter.answer(SECCOMP_RET_ALLOW);
}

}  // namespace

Result<void> install_seccomp_filter(uint64_t begin, uint64_t end) {
  Assembler filter(begin, end);
  assemble(filter);
  const sock_fprog program = filter.program();
  const auto install = [&program] {
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  };
  long outcome = install();
  if (outcome == -1 && errno == EACCES) {
    // Without root, a process may install a filter only if exec can give it no more rights.
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    outcome = install();
  }
  if (outcome == 0) return {};
  Error error = error_from_errno("installing the seccomp filter");
  if (outcome > 0) error.set_answer("thread %ld has a filter of its own", outcome);
  return error.set_cure("set [pool] enforce = \"kernel\", or run on a kernel with seccomp");
}

}  // namespace bedplate
