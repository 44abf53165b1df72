// The counters of an appliance, for tests of the counters file's writer and of its readers.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/counters/counters_file.h"
#include "apps/counters/counters_reader.h"
#include "platform/crash_record.h"
#include "platform/units.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

// The counters of one service.
struct HitCounters {
  Counter hits;
  Counter held_bytes;
};
inline void describe(CounterTable& table, HitCounters& counters) {
  table.counter("hits", counters.hits, "requests", "Gets that found a value.");
  table.gauge("held_bytes", counters.held_bytes, "bytes", "What values take.");
}
struct alignas(kCacheLineBytes) FeedCounters {
  Counter lost;
};
inline void describe(CounterTable& table, FeedCounters& counters) {
  table.counter("lost", counters.lost, "packets", "Never came.");
}
inline const std::vector<CounterSet> kSets = {
    {"cache", "gets", "", sizeof(HitCounters), described_counters<HitCounters>()},
    {"relay", "feeds", "a", sizeof(FeedCounters), described_counters<FeedCounters>()},
    {"relay", "feeds", "b", sizeof(FeedCounters), described_counters<FeedCounters>()}};

// The parts of an appliance that hold its name and its counters.
struct Running {
  NameLock lock;
  CountersFile file;

  Running(const std::string& directory, const std::string& name,
          const std::vector<CounterSet>& sets = kSets) {
    CHECK(lock.take(directory, name).ok());
    CHECK(file.create(lock, sets).ok());
  }
  HitCounters& gets() { return *static_cast<HitCounters*>(file.values(kSets[0])); }
  void publish() { file.publish(); }
};

inline CountersSnapshot snapshot_of(const CountersReader& reader) {
  auto taken = reader.snapshot();
  CHECK(taken.ok());
  return taken.take();
}
inline uint64_t hits_of(const CountersReader& reader) {
  return *snapshot_of(reader).sets()[0].read("hits");
}

// Records a crash in a file, as the handler of crashes does.
inline void record_crash(CountersHeader& header, std::string_view text,
                         uint64_t crashed_ns = 1'767'225'600 * kNsPerSecond) {
  auto* begin = reinterpret_cast<std::byte*>(&header);
  auto* record = reinterpret_cast<CrashRecord*>(begin + header.crash.offset);
  text.copy(record->text, sizeof record->text);
  record->text_bytes.store(text.size());
  record->crashed_ns.store(crashed_ns);
}

// Locks the whole file `path` by fcntl and by flock, as any process can that may read it.
inline Fd lock_to_read(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  CHECK(fd.is_open());
  LONGS_EQUAL(0, fcntl(fd.number(), F_OFD_SETLK, &lock));
  LONGS_EQUAL(0, flock(fd.number(), LOCK_SH | LOCK_NB));
  return fd;
}

struct CountersFileFixture : Utest {
  char root[64] = "/tmp/bedplate-counters-XXXXXX";
  std::string directory;

  void setup() override {
    CHECK(mkdtemp(root) != nullptr);
    directory = std::string(root) + "/run";
  }
  // Fails if a test leaves anything in `root`.
  void teardown() override { LONGS_EQUAL(0, rmdir(root)); }

  std::string path(const std::string& name) { return directory + "/" + name + ".stats"; }
  std::string crashed(const std::string& name) { return directory + "/" + name + ".crash"; }
  static bool exists(const std::string& which) { return access(which.c_str(), F_OK) == 0; }

  // Leaves a file as a crashed appliance does: nobody holds its lock. `spoil` changes the file
  // first.
  void leave_behind(
      const std::string& name,
      const std::function<void(CountersHeader&)>& spoil = [](CountersHeader&) {}) {
    const std::string aside = std::string(root) + "/aside";
    {
      Running crashed(directory, name);
      crashed.gets().hits.set(77);
      crashed.publish();
      const uint64_t bytes = crashed.file.header().file_bytes;
      spoil(crashed.file.header());
      LONGS_EQUAL(0, std::system(("cp " + path(name) + " " + aside).c_str()));
      crashed.file.header().file_bytes = bytes;  // the size for munmap()
    }
    mkdir(directory.c_str(), 0755);
    LONGS_EQUAL(0, rename(aside.c_str(), path(name).c_str()));
  }
  void remove_all(const std::string& name) {
    unlink(path(name).c_str());
    unlink(crashed(name).c_str());
    rmdir(directory.c_str());
  }

  void check_unreadable(const std::string& name, const char* answer) {
    const Result<CountersReader> opened = CountersReader::open(directory, name);
    CHECK(!opened.ok());
    STRCMP_EQUAL(answer, opened.error().answer);
    CHECK(opened.error().cure[0] != '\0');
  }
};

}  // namespace bedplate::test
