// A day of a relay, in simulated time: 200 changes of tables, 50 failovers of its encoder, 20
// losses of its interface, and clocks that jump. After each event and at the end, the stream is
// paced, watched and recorded. Only the network has lost packets, and no buffer is held.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "tests/apps/tsrelay/ts_mux.h"

#include "apps/tsrelay/recording_datapath.h"
#include "platform/file.h"
#include "tests/apps/tsrelay/relay_rig.h"

#include "tests/apps/tsrelay/dice.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStepNs = 20 * kMs;
constexpr uint64_t kDelayNs = 60 * kMs;

// The sender: up to four programs with video, audio and SCTE-35.
struct Encoder {
  TsMux mux;
  std::vector<MadeProgram> programs;
  uint8_t pat_version = 0;
  uint64_t clock_ticks = 0;  // ahead of the test's time
  bool announces = false;    // announces that its clock has jumped
  uint16_t sequence = 0;
  uint32_t ssrc = 0;
  std::string from = "10.0.0.1:5000";
  uint16_t withheld = kNullPid;

  static MadeProgram program(Dice& dice, uint16_t number) {
    const auto base = static_cast<uint16_t>(0x100 + 0x10 * dice.below(0x100));
    return {number,
            base,
            static_cast<uint16_t>(base + 1),
            {{0x1B, static_cast<uint16_t>(base + 1), {}},
             {0x0F, static_cast<uint16_t>(base + 2), {}},
             {0x86, static_cast<uint16_t>(base + 3), {}}},
            static_cast<uint8_t>(dice.below(2))};
  }
  // Adds a program with a number and PIDs that no other program has.
  void add(Dice& dice) {
    for (uint16_t number = 1;; ++number) {
      MadeProgram its = program(dice, number);
      const bool is_taken = std::any_of(programs.begin(), programs.end(), [&](const auto& other) {
        return other.number == number || other.pid == its.pid;
      });
      if (is_taken) continue;
      programs.push_back(its);
      return;
    }
  }
  // Returns the datagrams of one step.
  std::vector<Bytes> step(uint64_t now_ns) {
    Bytes all;
    const auto put = [&](const Bytes& packets) {
      all.insert(all.end(), packets.begin(), packets.end());
    };
    if (withheld != kPatPid) put(mux.table(kPatPid, made_pat(programs, {.version = pat_version})));
    for (const MadeProgram& its : programs) {
      if (withheld != its.pid) put(mux.table(its.pid, made_pmt(its)));
      for (const MadeStream& stream : its.streams) {
        if (stream.type == 0x86 || stream.pid == withheld) continue;
        const bool is_clock = stream.pid == its.clock_pid;
        Bytes one =
            mux.plain(stream.pid,
                      is_clock ? (now_ns / 1000 * 27 + clock_ticks) % kPcrModulus : TsMux::kNoPcr);
        if (is_clock && announces) one[5] |= std::byte{0x80};
        put(one);
      }
    }
    announces = false;
    std::vector<Bytes> datagrams;
    for (size_t at = 0; at < all.size(); at += 7 * kTsPacketBytes) {
      const size_t bytes = std::min<size_t>(all.size() - at, 7 * kTsPacketBytes);
      Bytes datagram(kRtpHeaderBytes);
      write_rtp({.sequence = sequence++,
                 .timestamp = rtp_clock(now_ns),
                 .ssrc = ssrc,
                 .payload_type = kRtpTransportStream},
                datagram.data());
      datagram.insert(datagram.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                      all.begin() + static_cast<std::ptrdiff_t>(at + bytes));
      datagrams.push_back(std::move(datagram));
    }
    return datagrams;
  }
};

// Records a ring into files of 1 MiB at most. answer() completes all writes.
struct Recorder final : FileBackend {
  static constexpr uint64_t kFileBytes = 1 << 20;
  static constexpr uint32_t kFileCount = 3;

  explicit Recorder(PacketRing& ring) : names(path(), kFileCount) {
    std::vector<FileOptions> options(kFileCount);
    for (uint32_t i = 0; i < kFileCount; ++i) {
      auto its = names.keeper(i).path();
      CHECK(its.ok());
      fds.emplace_back(::open(its.value().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      options[i] = {.name = std::to_string(i),
                    .fd = fds[i].number(),
                    .operation_count_max = Recording::kWritesMax,
                    .counters = &file_counters};
    }
    CHECK(files.open(options, *this, keys).ok());
    std::vector<File*> all;
    for (const FileOptions& one : options) all.push_back(files.find(one.name));
    CHECK(recording
              .create(ring, all,
                      {.rotate_bytes = kFileBytes,
                       .names = &names,
                       .counters = &counters,
                       .preparer = &preparer,
                       .shard = &shard})
              .ok());
  }
  ~Recorder() override {
    files.close(0);
    std::filesystem::remove_all(directory);
  }
  void answer() {
    recording.prepare();
    while (!issued.empty()) {
      FileOperation& operation = *issued.back();
      issued.pop_back();
      files.handle(operation, pwrite(operation.file->fd(), operation.memory, operation.bytes,
                                     static_cast<off_t>(operation.offset)));
    }
    CHECK(recording.is_valid());
  }
  uint64_t largest_file_bytes() const {
    uint64_t largest = 0;
    for (const auto& each : std::filesystem::directory_iterator(directory)) {
      largest = std::max<uint64_t>(largest, each.file_size());
    }
    return largest;
  }

  Result<void> open(Files&, const KeyTable&, uint32_t) override { return {}; }
  void issue(FileOperation& operation) noexcept override { issued.push_back(&operation); }
  bool wait(uint64_t) noexcept override { return false; }
  void close(bool) noexcept override {}

  std::string path() {
    CHECK(mkdtemp(directory) != nullptr);
    return std::string(directory) + "/day.ts";
  }

  char directory[64] = "/tmp/bedplate-day-XXXXXX";
  std::vector<FileOperation*> issued;
  RecordingFiles names;
  std::vector<Fd> fds;
  KeyTable keys;
  FileCounters file_counters;
  Files files;
  Doorbell preparer, shard;
  RecordingCounters counters;
  Recording recording;
};

}  // namespace

TEST_GROUP(RelayDay) {
  Dice dice;
  std::unique_ptr<RelayRig> rig;
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<Recorder> recorder;
  uint64_t given = 0;
  uint64_t unplugged = 0;  // datagrams
  uint64_t wall_ns = 1'000'000'000 * kMs;

  RelayRig& r() { return *rig; }
  const StreamCounters& counters() { return *rig->counters; }
  uint64_t faults() {
    const StreamCounters& c = counters();
    return c.ts_sync_losses.read() + c.ts_sync_byte_errors.read() + c.ts_pat_errors.read() +
           c.ts_continuity_errors.read() + c.ts_pmt_errors.read() + c.ts_pid_errors.read() +
           c.ts_transport_errors.read() + c.ts_crc_errors.read();
  }
  void run(uint64_t ns) {
    for (const uint64_t end = r().now + ns; r().now < end;) {
      for (const Bytes& datagram : encoder->step(r().now)) {
        CHECK(r().legs[0]->give(datagram, at(encoder->from.c_str()), wall_ns));
        ++given;
      }
      r().work();
      for (uint64_t part = 0; part < kStepNs; part += kStepNs / 4) {
        r().work(kStepNs / 4);
        recorder->answer();
      }
      wall_ns += kStepNs;
      r().stream.look_for_missing(r().now);
    }
  }
  // The encoder sends, but nothing arrives.
  void unplug(uint64_t ns) {
    for (const uint64_t end = r().now + ns; r().now < end;) {
      unplugged += encoder->step(r().now).size();
      r().work(kStepNs);
      recorder->answer();
      wall_ns += kStepNs;
      r().stream.look_for_missing(r().now);
    }
  }
  void change_tables() {
    std::vector<MadeProgram>& programs = encoder->programs;
    const uint32_t what = dice.below(6);
    if (programs.size() < 2 || (what == 0 && programs.size() < 4)) {
      encoder->add(dice);
      ++encoder->pat_version;
    } else if (what == 1) {  // the first program ends
      programs.erase(programs.begin());
      ++encoder->pat_version;
    } else if (what == 2) {
      std::swap(programs[0], programs[1]);
      ++encoder->pat_version;
    } else if (what == 3) {  // another program replaces the first one
      programs.erase(programs.begin());
      encoder->add(dice);
      std::rotate(programs.begin(), programs.end() - 1, programs.end());
      ++encoder->pat_version;
    } else if (what == 4) {  // the clock moves to the audio, and back
      MadeProgram& its = programs[0];
      its.clock_pid = its.streams[its.clock_pid == its.streams[0].pid ? 1 : 0].pid;
      ++its.version;
    } else {  // a PID changes without a new version
      MadeProgram& its = programs[0];
      its.streams[1].pid = static_cast<uint16_t>(its.pid + 4 + dice.below(8));
      if (its.clock_pid != its.streams[0].pid) its.clock_pid = its.streams[1].pid;
    }
  }
  void fail_over() {
    const uint32_t what = dice.below(3);
    const Encoder before = *encoder;
    encoder = std::make_unique<Encoder>();
    for (uint32_t i = 1 + dice.below(3); i > 0; --i) encoder->add(dice);
    encoder->clock_ticks = dice.below(1U << 31) * uint64_t{600};
    encoder->sequence = static_cast<uint16_t>(dice.below(65536));
    encoder->ssrc = before.ssrc + 1;
    encoder->from = before.from;
    if (what == 1) {  // the spare encoder, after a silence
      encoder->from = before.from == "10.0.0.1:5000" ? "10.0.0.2:7000" : "10.0.0.1:5000";
      encoder->ssrc = dice.below(2) == 0 ? before.ssrc : encoder->ssrc;
      r().work(501 * kMs);
    }
  }
};

TEST(RelayDay, ItIsPacedAndWatchedToItsEnd) {
  rig = std::make_unique<RelayRig>();
  r().options.pace_delay_ns = kDelayNs;
  r().options.packet_count = 2048;
  r().out.notes = false;
  r().options.tap_count = 3;
  r().create();
  recorder = std::make_unique<Recorder>(r().stream.ring());
  encoder = std::make_unique<Encoder>();
  encoder->add(dice);
  encoder->clock_ticks = kPcrModulus - 100 * kPcrHz;  // it wraps around during the test
  run(1000 * kMs);
  uint32_t changes = 0;
  uint32_t failovers = 0;
  uint32_t losses = 0;
  for (uint32_t event = 0; event < 290; ++event) {
    if (event % 29 < 25 && event % 29 % 5 == 4) {
      fail_over();
      ++failovers;
    } else if (event % 29 >= 27) {
      unplug((40 + dice.below(4000)) * kMs);
      ++losses;
    } else if (event % 29 >= 25) {
      encoder->clock_ticks += (1 + dice.below(1'000'000)) * kPcrHz;
      encoder->announces = event % 2 == 0;
      wall_ns += (dice.below(3) - 1) * 3'600'000 * kMs;
    } else {
      change_tables();
      ++changes;
    }
    run(300 * kMs);
    // Nothing changes from here on, so no fault may be counted.
    const uint64_t restarts = counters().pace_restarts.read();
    const uint64_t discontinuities = counters().pcr_discontinuities.read();
    const uint64_t faults_before = faults();
    run(200 * kMs);
    LONGS_EQUAL(restarts, counters().pace_restarts.read());
    LONGS_EQUAL(discontinuities, counters().pcr_discontinuities.read());
    LONGS_EQUAL(faults_before, faults());
    CHECK(losses > 0 || faults() == 0);  // only a lost interface makes faults
    LONGS_EQUAL(encoder->programs.size(), counters().ts_programs.read());
    CHECK(counters().ts_bit_rate.read() > 0);
    // The last packets wait for their time, but not for ever.
    CHECK(r().stream.deadline_ns() >= r().now);
    CHECK(r().stream.deadline_ns() <= r().now + 3 * kDelayNs);
  }
  CHECK(changes >= 200 && failovers >= 50 && losses >= 20);
  LONGS_EQUAL(0, counters().late.read() + counters().duplicates.read());
  LONGS_EQUAL(unplugged, counters().lost.read());
  LONGS_EQUAL(0, r().leg().foreign.read() + r().leg().outside.read());
  const uint64_t pid_errors = counters().ts_pid_errors.read();
  const uint64_t pmt_errors = counters().ts_pmt_errors.read();
  const uint64_t pat_errors = counters().ts_pat_errors.read();
  // The stream is watched: missing audio of the first program, a missing PMT and a missing PAT are
  // counted.
  encoder->withheld = encoder->programs[0].streams[1].pid;
  if (encoder->withheld == encoder->programs[0].clock_pid) {
    encoder->withheld = encoder->programs[0].streams[0].pid;
  }
  run(5200 * kMs);
  LONGS_EQUAL(pid_errors + 1, counters().ts_pid_errors.read());
  encoder->withheld = encoder->programs[0].pid;
  run(700 * kMs);
  LONGS_EQUAL(pmt_errors + 1, counters().ts_pmt_errors.read());
  encoder->withheld = kPatPid;
  run(700 * kMs);
  LONGS_EQUAL(pat_errors + 1, counters().ts_pat_errors.read());
  r().stream.drain();
  recorder->answer();
  r().work();
  LONGS_EQUAL(given, counters().packets.read());
  LONGS_EQUAL(given, r().output().packets.read());
  LONGS_EQUAL(given, recorder->counters.packets.read());
  LONGS_EQUAL(0, recorder->counters.dropped.read() + recorder->counters.errors.read());
  CHECK(recorder->counters.files.read() > Recorder::kFileCount);
  CHECK(recorder->largest_file_bytes() <= Recorder::kFileBytes);
  LONGS_EQUAL(0, r().kept_count());
  CHECK(r().stream.is_valid());
}
