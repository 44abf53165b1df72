// How clients come to a server that has no sessions: a few places, and terms for each listener.
// The servers of lines (stream_server_test.cc, refused_clients_test.cc) test the rest.
#include "transport/sockets/stream_acceptor.h"

#include <vector>

#include <sys/socket.h>

#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

namespace {

class AcceptorBodies : public SocketsFixture {
 public:
  static constexpr size_t kPlaces = 2;

  AcceptorCounters counted;
  Counter turned_away;
  StreamAcceptor acceptor;
  int terms = 0;
  void* terms_of_last = nullptr;
  std::vector<Fd> taken;
  uint32_t drain_count = 0;
  sockaddr_in address = {};
  Fd listener;

  void teardown() override {
    taken.clear();
    if (listener.is_open()) acceptor.drain();
    sockets.reset();
    listener.close();
    SocketsFixture::teardown();
  }

  void serve(bool tells_apart = true) {
    listener = listening_socket(&address);
    acceptor.create(
        {.loop = loop.get(),
         .sockets = sockets.get(),
         .counters = &counted,
         .turned_away = tells_apart ? &turned_away : nullptr,
         .take =
             [](void* self, const AcceptedClient& client) noexcept {
               return static_cast<AcceptorBodies*>(self)->take(client);
             },
         .drain = [](void* self) noexcept { ++static_cast<AcceptorBodies*>(self)->drain_count; },
         .context = this});
    acceptor.add(listener.number(), &terms);
    acceptor.start();
  }
  AcceptOutcome take(const AcceptedClient& client) noexcept {
    if (taken.size() == kPlaces) return AcceptOutcome::kNoPlace;
    taken.emplace_back(client.fd);
    terms_of_last = client.terms;
    acceptor.opened();
    return AcceptOutcome::kTaken;
  }
  bool has_taken(size_t count) {
    return run_until([&] { return taken.size() == count; });
  }
  void close_one() {
    taken.pop_back();
    acceptor.closed();
  }
  // Whether the connection of a new client is closed at once.
  bool is_refused() {
    const Fd client = connect_to(address);
    return run_until([&] {
      char byte = 0;
      return recv(client.number(), &byte, 1, MSG_DONTWAIT) == 0;
    });
  }

  void takes_and_counts() {
    serve();
    const Fd one = connect_to(address);
    CHECK(has_taken(1));
    CHECK(terms_of_last == &terms);
    const Fd two = connect_to(address);
    CHECK(has_taken(2));
    close_one();
    CHECK_EQUAL(1, counted.connections_open.read());
    CHECK_EQUAL(2, counted.connections_peak.read());
    CHECK_EQUAL(2, counted.connections_total.read());
    CHECK_EQUAL(0, counted.connections_refused.read());
  }

  void one_too_many_is_refused() {
    serve();
    const Fd one = connect_to(address);
    const Fd two = connect_to(address);
    CHECK(has_taken(2));
    CHECK(is_refused());
    CHECK_EQUAL(1, counted.connections_refused.read());
    CHECK_EQUAL(0, turned_away.read());
    close_one();
    const Fd three = connect_to(address);
    CHECK(has_taken(2));
    CHECK_EQUAL(3, counted.connections_total.read());
  }

  void it_may_take_nobody() {
    serve();
    acceptor.set_accepting(false);
    CHECK_FALSE(acceptor.is_accepting());
    CHECK(is_refused());
    CHECK_EQUAL(1, turned_away.read());
    CHECK_EQUAL(0, counted.connections_refused.read());
    acceptor.set_accepting(true);
    const Fd one = connect_to(address);
    CHECK(has_taken(1));
  }

  void those_turned_away_are_refused_ones() {
    serve(false);
    acceptor.set_accepting(false);
    CHECK(is_refused());
    CHECK_EQUAL(1, counted.connections_refused.read());
  }

  void drains() {
    serve();
    const Fd one = connect_to(address);
    CHECK(has_taken(1));
    acceptor.drain();
    acceptor.drain();
    LONGS_EQUAL(1, drain_count);
    CHECK(acceptor.is_draining());
    CHECK_FALSE(acceptor.is_accepting());
    CHECK_FALSE(acceptor.is_drained());
    close_one();
    CHECK(acceptor.is_drained());
  }

  void drains_without_connections() {
    serve();
    acceptor.drain();
    LONGS_EQUAL(1, drain_count);
    CHECK(acceptor.is_drained());
  }
};

}  // namespace

BP_GROUPS_OF_BOTH_BACKENDS(StreamAcceptor, AcceptorBodies);

BP_BOTH_BACKENDS(StreamAcceptor, TakesAndCounts, takes_and_counts())
BP_BOTH_BACKENDS(StreamAcceptor, OneTooManyIsRefused, one_too_many_is_refused())
BP_BOTH_BACKENDS(StreamAcceptor, ItMayTakeNobody, it_may_take_nobody())
BP_BOTH_BACKENDS(StreamAcceptor, ThoseTurnedAwayAreRefusedOnes,
                 those_turned_away_are_refused_ones())
BP_BOTH_BACKENDS(StreamAcceptor, DrainsAndWaitsForTheLast, drains())
BP_BOTH_BACKENDS(StreamAcceptor, DrainsWithoutConnections, drains_without_connections())
