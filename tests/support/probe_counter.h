// Counts the hits of a probe in this program (platform/usdt.h), as bpftrace would: replaces the
// probe's nop by a breakpoint while this object exists.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>

#include "platform/file.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

// Make it a member of the test's group, in a std::optional: a failed test leaves its body without
// calling destructors, and the breakpoints would stay.
// Threads: only the test's thread may reach the probe. One object at a time.
class ProbeCounter {
 public:
  explicit ProbeCounter(std::string_view name) {
    find_sites(name);
    CHECK(!sites().empty());
    hits() = 0;
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      const auto at = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] - 1;
      for (const uint8_t* site : sites()) hits() += reinterpret_cast<greg_t>(site) == at ? 1 : 0;
    };
    CHECK(sigaction(SIGTRAP, &action, &before_) == 0);
    for (uint8_t* site : sites()) {
      LONGS_EQUAL(kNop, *site);
      write(site, kBreakpoint);
    }
  }
  ProbeCounter(const ProbeCounter&) = delete;
  ProbeCounter& operator=(const ProbeCounter&) = delete;
  ~ProbeCounter() {
    for (uint8_t* site : sites()) write(site, kNop);
    sites().clear();
    sites().shrink_to_fit();
    sigaction(SIGTRAP, &before_, nullptr);
  }
  // The hits since the last call.
  uint32_t taken() noexcept { return hits().exchange(0); }

 private:
  static constexpr uint8_t kNop = 0x90;
  static constexpr uint8_t kBreakpoint = 0xcc;
  // The addresses in a note of SystemTap: the probe, the expected .stapsdt.base, a semaphore.
  struct Addresses {
    uint64_t site;
    uint64_t base;
    uint64_t semaphore;
  };

  static std::vector<uint8_t*>& sites() {
    static std::vector<uint8_t*> all;
    return all;
  }
  static std::atomic<uint32_t>& hits() {
    static std::atomic<uint32_t> count{0};
    return count;
  }

  static void write(uint8_t* site, uint8_t byte) {
    auto* page = reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(site) & ~uintptr_t{4095});
    mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    *const_cast<volatile uint8_t*>(site) = byte;
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
  }
  static uint64_t load_bias() {
    uint64_t bias = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* program, size_t, void* out) {
          *static_cast<uint64_t*>(out) = program->dlpi_addr;
          return 1;  // the first is the program itself
        },
        &bias);
    return bias;
  }
  void find_sites(std::string_view wanted) {
    const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    struct stat status = {};
    CHECK(fstat(file.number(), &status) == 0);
    const auto bytes = static_cast<size_t>(status.st_size);
    void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.number(), 0);
    CHECK(mapped != MAP_FAILED);
    const std::string_view all(static_cast<const char*>(mapped), bytes);
    const auto at = [&]<typename Type>(uint64_t offset, Type) {
      Type value;
      CHECK(offset + sizeof value <= all.size());
      std::memcpy(&value, all.data() + offset, sizeof value);
      return value;
    };
    const auto header = at(0, ElfW(Ehdr){});
    const auto section = [&](unsigned index) {
      return at(header.e_shoff + index * sizeof(ElfW(Shdr)), ElfW(Shdr){});
    };
    const auto names = section(header.e_shstrndx);
    for (unsigned i = 0; i < header.e_shnum; ++i) {
      const auto one = section(i);
      if (std::string_view(all.data() + names.sh_offset + one.sh_name) != ".note.stapsdt") continue;
      for (uint64_t note = one.sh_offset; note < one.sh_offset + one.sh_size;) {
        const auto head = at(note, ElfW(Nhdr){});
        const uint64_t body = note + sizeof head + (head.n_namesz + 3) / 4 * 4;
        const auto addresses = at(body, Addresses{});
        const std::string_view provider(all.data() + body + sizeof addresses);
        const std::string_view name(provider.data() + provider.size() + 1);
        if (provider == "bedplate" && name == wanted) {
          sites().push_back(reinterpret_cast<uint8_t*>(addresses.site + load_bias()));
        }
        note = body + (head.n_descsz + 3) / 4 * 4;
      }
    }
    munmap(mapped, bytes);
  }

  struct sigaction before_ = {};
};

}  // namespace bedplate::test
