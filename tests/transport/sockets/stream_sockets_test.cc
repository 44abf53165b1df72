// Traffic over stream sockets: bytes arrive whole and in order, and each operation completes once,
// however the connection ends.
#include "tests/transport/sockets/stream_sockets_fixture.h"

#include <deque>
#include <random>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"

using namespace bedplate;

class TrafficBodies : public SocketsFixture {
 public:
  void echo() {
    std::vector<std::byte> buffer(70'000);
    uint64_t position = 0;
    for (const size_t bytes : {1, 28, 4096, 65'536, 3, 70'000}) {
      const auto said = pattern_bytes(position, bytes);
      size_t written = 0;
      receive(ours, buffer.data(), buffer.size(), bytes);
      const uint32_t done = ours.receive_count;
      CHECK(run_until([&] {
        written += write_now(peer.number(), said.data() + written, bytes - written);
        return ours.receive_count == done + 1;
      }));
      LONGS_EQUAL(bytes, ours.received);
      send(ours, buffer.data(), bytes);
      std::vector<std::byte> heard(bytes);
      size_t got = 0;
      CHECK(run_until([&] {
        got += read_now(peer.number(), heard.data() + got, bytes - got);
        return got == bytes && !ours.socket.send.is_in_flight;
      }));
      LONGS_EQUAL(bytes, ours.sent);
      CHECK(heard == said);
      position += bytes;
    }
    CHECK_EQUAL(position, counters.received_bytes.read());
    CHECK_EQUAL(position, counters.sent_bytes.read());
  }

  void scatter_and_gather() {
    connect_pair();
    constexpr size_t kPieces = 100;
    std::vector<std::byte> memory(kPieces * 200);
    uint64_t total = 0;
    for (size_t i = 0; i < kPieces; ++i) {
      const size_t bytes = 1 + i * 37 % 150;
      ours.receive_pieces.push_back({&memory[i * 200], bytes});
      total += bytes;
    }
    ours.send_pieces = ours.receive_pieces;
    const std::vector<iovec> pieces = ours.receive_pieces;  // the operation changes its own list
    start_receive(ours, total);
    const auto said = pattern_bytes(0, total);
    // In steps that end within pieces and at their borders.
    size_t written = 0;
    CHECK(run_until([&] {
      written += write_now(peer.number(), &said[written], std::min<size_t>(113, total - written));
      return ours.receive_count == 1;
    }));
    LONGS_EQUAL(total, ours.received);
    uint64_t at = 0;
    for (const iovec& piece : pieces) {
      CHECK(is_pattern(static_cast<std::byte*>(piece.iov_base), piece.iov_len, at));
      at += piece.iov_len;
    }
    start_send(ours);
    CHECK(run_until([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(total, ours.sent);
    std::vector<std::byte> heard(total);
    LONGS_EQUAL(total, read_now(peer.number(), heard.data(), total));
    CHECK(heard == said);
    // No byte beside the pieces has changed.
    for (size_t i = 0; i < kPieces; ++i) {
      for (size_t k = pieces[i].iov_len; k < 200; ++k) CHECK(memory[i * 200 + k] == std::byte{});
    }
  }

  void waits_for_min_bytes() {
    connect_pair();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer, 28);
    const auto said = pattern_bytes(0, 33);
    write_now(peer.number(), said.data(), 10);
    CHECK(run_until([&] { return unread_bytes(ours_fd.number()) == 0; }));
    for (int i = 0; i < 10; ++i) pump();
    LONGS_EQUAL(0, ours.receive_count);
    write_now(peer.number(), &said[10], 17);
    CHECK(run_until([&] { return unread_bytes(ours_fd.number()) == 0; }));
    for (int i = 0; i < 10; ++i) pump();
    LONGS_EQUAL(0, ours.receive_count);
    write_now(peer.number(), &said[27], 6);
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(33, ours.received);
    CHECK(is_pattern(buffer, 33, 0));
  }

  void sends_to_a_slow_reader() {
    connect_tcp();
    constexpr size_t kBytes = 8 * kMiB;
    auto said = pattern_bytes(0, kBytes);
    ours.send_pieces = {{said.data(), 16},
                        {&said[16], kBytes / 2},
                        {&said[16 + kBytes / 2], 1},
                        {&said[17 + kBytes / 2], kBytes / 2 - 17}};
    start_send(ours);
    std::vector<std::byte> heard(kBytes);
    size_t got = 0;
    size_t bite = 1;
    bool early = false;
    CHECK(run_until([&] {
      early |= ours.send_count == 1 && got + 8 * kMiB <= kBytes;  // no buffer holds all of it
      got += read_now(peer.number(), &heard[got], std::min(bite, kBytes - got));
      bite = bite * 2 % 99'991;
      return got == kBytes && ours.send_count == 1;
    }));
    CHECK(!early);
    LONGS_EQUAL(kBytes, ours.sent);
    CHECK(is_pattern(heard.data(), kBytes, 0));
  }

  void end_of_file() {
    connect_pair();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer);
    const auto said = pattern_bytes(0, 5);
    write_now(peer.number(), said.data(), 5);
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(5, ours.received);
    receive(ours, buffer, sizeof buffer);
    shutdown(peer.number(), SHUT_WR);
    CHECK(run_until([&] { return ours.receive_count == 2; }));
    LONGS_EQUAL(0, ours.received);
    receive(ours, buffer, sizeof buffer);  // the end is permanent
    CHECK(run_until([&] { return ours.receive_count == 3; }));
    LONGS_EQUAL(0, ours.received);
    send(ours, buffer, 5);  // the other direction is still open
    CHECK(run_until([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(5, ours.sent);
  }

  void end_of_file_before_min_bytes() {
    connect_pair();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer, 28);
    write_now(peer.number(), pattern_bytes(0, 10).data(), 10);
    CHECK(run_until([&] { return unread_bytes(ours_fd.number()) == 0; }));
    peer.close();
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(0, ours.received);
  }

  void reset() {
    connect_tcp();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer);
    pump();
    const linger at_once = {1, 0};
    setsockopt(peer.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    peer.close();
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(-ECONNRESET, ours.received);
    send(ours, buffer, sizeof buffer);
    CHECK(run_until([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(-EPIPE, ours.sent);  // and no SIGPIPE
  }

  void send_to_a_peer_that_left() {
    connect_pair();
    auto said = pattern_bytes(0, 4 * kMiB);
    send(ours, said.data(), said.size());
    CHECK(run_until([&] { return unread_bytes(peer.number()) > 0; }));
    LONGS_EQUAL(0, ours.send_count);
    peer.close();
    CHECK(run_until([&] { return ours.send_count == 1; }));
    CHECK(ours.sent == -EPIPE || ours.sent == -ECONNRESET);
  }

  void abort_in_flight() {
    connect_pair();
    std::byte buffer[100];
    auto said = pattern_bytes(0, 4 * kMiB);
    receive(ours, buffer, sizeof buffer, 50);
    send(ours, said.data(), said.size());
    write_now(peer.number(), pattern_bytes(0, 10).data(), 10);
    CHECK(run_until(
        [&] { return unread_bytes(ours_fd.number()) == 0 && unread_bytes(peer.number()) > 0; }));
    LONGS_EQUAL(0, ours.receive_count + ours.send_count);
    sockets->abort(ours.socket);
    CHECK(run_until([&] { return ours.receive_count == 1 && ours.send_count == 1; }));
    CHECK(ours.received <= 0);
    CHECK(ours.sent < 0);
    for (int i = 0; i < 5; ++i) pump();
    LONGS_EQUAL(2, ours.receive_count + ours.send_count);
  }

  void never_calls_back_from_within() {
    connect_pair();
    std::byte buffer[8];
    write_now(peer.number(), pattern_bytes(0, 8).data(), 8);
    receive(ours, buffer, sizeof buffer);
    send(ours, buffer, sizeof buffer);
    LONGS_EQUAL(0, ours.receive_count + ours.send_count);
    CHECK(run_until([&] { return ours.receive_count + ours.send_count == 2; }));
  }

  void insists();
  void random_traffic();
};

void TrafficBodies::insists() {
  connect_pair();
  std::byte buffer[8];
  BP_CHECK_DIES("a socket begins a receive without pieces of memory", {
    ours.receive_pieces.clear();
    start_receive(ours, 1);
  });
  receive(ours, buffer, sizeof buffer);
  BP_CHECK_DIES("a socket begins a receive while its earlier one is in flight",
                sockets->receive(ours.socket));
  BP_CHECK_DIES("a socket is detached while an operation of it is in flight",
                sockets->detach(ours.socket));
}

// Several sockets with random operations of random sizes, in both directions. The model is the byte
// pattern of each stream.
void TrafficBodies::random_traffic() {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  constexpr size_t kSockets = 6;
  constexpr uint64_t kStreamBytes = 400'000;
  struct Stream {
    Ours ours;
    Fd fd, peer;
    uint64_t taken = 0, given = 0, peer_wrote = 0, peer_read = 0;
    uint32_t receives = 0, sends = 0;
    uint64_t min_bytes = 0, asked = 0, sending = 0;
    std::vector<std::byte> in, out;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < kSockets; ++i) {
    streams.push_back(std::make_unique<Stream>());
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    streams[i]->fd = Fd(fds[0]);
    streams[i]->peer = Fd(fds[1]);
    attach(streams[i]->ours, fds[0]);
  }
  bool good = true;
  // Checks the finished operations, and begins the next ones.
  const auto turn = [&](Stream& s) {
    Ours& o = s.ours;
    if (s.asked > 0 && !o.socket.receive.is_in_flight) {
      good &= o.receive_count == s.receives;
      good &= o.received >= static_cast<int64_t>(s.min_bytes) &&
              o.received <= static_cast<int64_t>(s.asked);
      good = good && is_pattern(s.in.data(), static_cast<uint64_t>(o.received), s.taken);
      s.taken += static_cast<uint64_t>(std::max<int64_t>(o.received, 0));
      s.asked = 0;
    }
    if (s.sending > 0 && !o.socket.send.is_in_flight) {
      good &= o.send_count == s.sends && o.sent == static_cast<int64_t>(s.sending);
      s.given += s.sending;
      s.sending = 0;
    }
    if (s.asked == 0 && s.taken < kStreamBytes) {
      s.asked = std::min(1 + random() % 30'000, kStreamBytes - s.taken);
      s.min_bytes = 1 + random() % s.asked;
      s.in.assign(s.asked, std::byte{});
      const uint64_t cut = random() % s.asked;
      o.receive_pieces = {{s.in.data(), cut}, {s.in.data() + cut, s.asked - cut}};
      if (cut == 0) o.receive_pieces.erase(o.receive_pieces.begin());
      start_receive(o, s.min_bytes);
      ++s.receives;
    }
    if (s.sending == 0 && s.given < kStreamBytes) {
      s.sending = std::min(1 + random() % 60'000, kStreamBytes - s.given);
      s.out = pattern_bytes(s.given, s.sending);
      send(o, s.out.data(), s.sending);
      ++s.sends;
    }
    const auto bite =
        pattern_bytes(s.peer_wrote, std::min(random() % 9'000, kStreamBytes - s.peer_wrote));
    s.peer_wrote += write_now(s.peer.number(), bite.data(), bite.size());
    std::byte heard[9'000];
    const size_t got = read_now(s.peer.number(), heard, random() % sizeof heard);
    good = good && is_pattern(heard, got, s.peer_read);
    s.peer_read += got;
    return s.taken == kStreamBytes && s.given == kStreamBytes && s.peer_read == kStreamBytes;
  };
  const bool ended = run_until([&] {
    size_t done = 0;
    for (auto& each : streams) done += turn(*each);
    return done == kSockets || !good;
  });
  for (auto& each : streams) {
    good &= each->ours.receive_count == each->receives && each->ours.send_count == each->sends;
    if (!good || !ended) sockets->abort(each->ours.socket);
  }
  run_until([&] {
    return std::none_of(streams.begin(), streams.end(), [](const auto& each) {
      return each->ours.socket.receive.is_in_flight || each->ours.socket.send.is_in_flight;
    });
  });
  for (auto& each : streams) sockets->detach(each->ours.socket);
  CHECK_TEXT(ended, seed.text());
  CHECK_TEXT(good, seed.text());
  CHECK_EQUAL(kSockets * kStreamBytes, counters.received_bytes.read());
  CHECK_EQUAL(kSockets * kStreamBytes, counters.sent_bytes.read());
}

BP_GROUPS_OF_BOTH_BACKENDS(Sockets, TrafficBodies);

BP_BOTH_BACKENDS(Sockets, EchoOverASocketPair, connect_pair(); echo())
BP_BOTH_BACKENDS(Sockets, EchoOverTcp, connect_tcp(); echo())
BP_BOTH_BACKENDS(Sockets, ReceiveIntoAndSendFromManyPieces, scatter_and_gather())
BP_BOTH_BACKENDS(Sockets, AReceiveCompletesOnceItsMinimumIsThere, waits_for_min_bytes())
BP_BOTH_BACKENDS(Sockets, ASendToASlowReaderCompletesOnceWithAllBytes, sends_to_a_slow_reader())
BP_BOTH_BACKENDS(Sockets, OperationsNeverCompleteFromWithinTheirStart,
                 never_calls_back_from_within())
BP_BOTH_BACKENDS(Sockets, TheEndOfTheStreamIsZero, end_of_file())
BP_BOTH_BACKENDS(Sockets, TheEndOfTheStreamBeforeTheMinimumIsZero, end_of_file_before_min_bytes())
BP_BOTH_BACKENDS(Sockets, AResetIsAnErrorForBothDirections, reset())
BP_BOTH_BACKENDS(Sockets, ASendFailsWhenThePeerLeavesInTheMiddle, send_to_a_peer_that_left())
BP_BOTH_BACKENDS(Sockets, AbortCompletesWhatIsInFlightOnce, abort_in_flight())
BP_BOTH_BACKENDS(Sockets, InsistOnTheirRequirements, insists())
BP_BOTH_BACKENDS(Sockets, RandomTrafficArrivesWholeAndEachOperationCompletesOnce, random_traffic())

// Counts the polls that attempt something until the kernel watches all sockets. Each such poll is
// one system call.
TEST(UringSockets, ManyThatAreSilentAreTriedLessOftenThanOne) {
  if (!is_available()) BP_SKIP("io_uring is not available here");
  constexpr size_t kMany = 48;
  struct Stream {
    Ours ours;
    Fd ours_fd, peer;
    std::byte buffer = {};
  };
  const auto polls_with_attempts = [this](size_t count) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (size_t i = 0; i < count; ++i) {
      streams.push_back(std::make_unique<Stream>());
      int fds[2];
      LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
      streams.back()->ours_fd = Fd(fds[0]);
      streams.back()->peer = Fd(fds[1]);
      attach(streams.back()->ours, fds[0]);
    }
    // Makes the sockets hot: each has just received something.
    std::byte byte = {};
    for (auto& each : streams) {
      LONGS_EQUAL(1, write_now(each->peer.number(), &byte, 1));
      receive(each->ours, &each->buffer, 1);
    }
    CHECK(run_until([&] {
      return std::all_of(streams.begin(), streams.end(),
                         [](const auto& each) { return each->ours.receive_count == 1; });
    }));
    for (auto& each : streams) receive(each->ours, &each->buffer, 1);
    const uint64_t before = counters.system_calls.read();
    for (int i = 0; i < 100; ++i) sockets->poll(2 * kMany);
    const uint64_t calls = counters.system_calls.read() - before;
    for (auto& each : streams) sockets->abort(each->ours.socket);
    CHECK(run_until([&] {
      return std::none_of(streams.begin(), streams.end(),
                          [](const auto& each) { return each->ours.socket.receive.is_in_flight; });
    }));
    for (auto& each : streams) sockets->detach(each->ours.socket);
    return calls;
  };
  const uint64_t of_one = polls_with_attempts(1);
  const uint64_t of_many = polls_with_attempts(kMany);
  CHECK_COMPARE(of_one, >=, 32);
  CHECK_COMPARE(of_many, <=, 8);
  CHECK_COMPARE(of_many, >=, 2);
}

// A poll does sends before receives, whichever was started first, so that a peer's answer does not
// wait while its next request is copied. Here both ends belong to the test, so one poll shows the
// order.
TEST(UringSockets, SendBeforeTheyReceive) {
  if (!is_available()) BP_SKIP("io_uring is not available here");
  int fds[2];
  LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
  const Fd first_fd(fds[0]), second_fd(fds[1]);
  Ours first, second;
  attach(first, fds[0]);
  attach(second, fds[1]);
  std::byte said{42}, heard{};
  receive(second, &heard, 1);
  send(first, &said, 1);
  sockets->poll(64);
  LONGS_EQUAL(1, second.receive_count);
  CHECK(heard == said);
  CHECK(run_until([&] { return first.send_count == 1; }));
  sockets->detach(first.socket);
  sockets->detach(second.socket);
}

TEST(UringSockets, AreADevice) {
  STRCMP_EQUAL("io_uring", sockets->name());
  STRCMP_EQUAL("io_uring", sockets->device()->kind().name);
}
TEST(EpollSockets, AreNoDevice) {
  STRCMP_EQUAL("epoll", sockets->name());
  POINTERS_EQUAL(nullptr, sockets->device());
}

// ---- Shared by both backends ----

TEST_GROUP(SocketOperation){};

TEST(SocketOperation, AdvanceUsesThePiecesUpFromTheFront) {
  char memory[10];
  iovec pieces[] = {{memory, 4}, {memory + 4, 1}, {memory + 5, 5}};
  StreamSocket socket;
  socket.receive.pieces = pieces;
  socket.receive.piece_count = 3;
  socket.receive.min_bytes = 7;
  begin_operation(socket.receive, socket, false);
  CHECK(socket.receive.is_in_flight);
  CHECK(!advance(socket.receive, 3));
  POINTERS_EQUAL(memory + 3, socket.receive.message.msg_iov->iov_base);
  CHECK(!advance(socket.receive, 1));
  LONGS_EQUAL(2, socket.receive.message.msg_iovlen);
  CHECK(!advance(socket.receive, 2));
  POINTERS_EQUAL(memory + 6, socket.receive.message.msg_iov->iov_base);
  LONGS_EQUAL(4, socket.receive.message.msg_iov->iov_len);
  CHECK(advance(socket.receive, 4));
  LONGS_EQUAL(0, socket.receive.message.msg_iovlen);
  LONGS_EQUAL(10, socket.receive.moved_bytes);
}

TEST(SocketOperation, ASendWantsAllItsBytesWhateverItsMinimumSaid) {
  char memory[10];
  iovec pieces[] = {{memory, 4}, {memory + 4, 6}};
  StreamSocket socket;
  socket.send.pieces = pieces;
  socket.send.piece_count = 2;
  socket.send.min_bytes = 1;
  begin_operation(socket.send, socket, true);
  CHECK(!advance(socket.send, 9));
  CHECK(advance(socket.send, 1));
}

TEST(SocketOperation, MovingMoreThanThePiecesHoldIsADefect) {
  char memory[4];
  iovec piece = {memory, 4};
  StreamSocket socket;
  socket.receive.pieces = &piece;
  socket.receive.piece_count = 1;
  begin_operation(socket.receive, socket, false);
  BP_CHECK_DIES("msg_iovlen > 0", advance(socket.receive, 5));
}
