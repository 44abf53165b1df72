// A server of lines that replaces idle connections, and closes those that are idle or too slow.
#include "transport/sockets/stream_server.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/transport/sockets/stream_server_bodies.h"

using namespace bedplate;

class PatienceBodies : public ServerBodies {
 public:
  bool replaces_idle = false;
  PatienceLimits patience;

  void adjust(StreamServerOptions* options) override {
    options->replaces_idle = replaces_idle;
    options->patience = patience;
  }
  Client silent_client() { return add(std::make_shared<ServerClient>(connect_to(address))); }
  void serve_replacing() {
    replaces_idle = true;
    serve();
  }
  void expect_answer(const Client& client, const std::string& line) {
    client->say(line);
    STRCMP_EQUAL(line.c_str(), hear(client, line.size()).c_str());
  }

  void the_place_of_a_silent_one() {
    serve_replacing();
    Client all[kConnections];
    for (Client& client : all) client = connect();
    const Client next = connect();
    STRCMP_EQUAL("", hear_all(all[0]).c_str());
    expect_answer(all[1], "one\n");
    expect_answer(all[2], "two\n");
    expect_answer(next, "three\n");
    CHECK_EQUAL(1, clients.connections_replaced.read());
    CHECK_EQUAL(0, clients.connections_refused.read());
    CHECK_EQUAL(kConnections, clients.connections_peak.read());
    LONGS_EQUAL(1, shared.reset_count);
    drain();
  }

  // Each newcomer is idle, too, until it is served.
  void a_crowd_of_silent_ones() {
    serve_replacing();
    Client all[kConnections];
    for (Client& client : all) client = connect();
    std::vector<Client> crowd;
    for (int i = 0; i < 20; ++i) crowd.push_back(silent_client());
    CHECK(run([&] { return clients.connections_replaced.read() == 20; }));
    expect_answer(crowd.back(), "last\n");
    CHECK_EQUAL(kConnections, clients.connections_peak.read());
    drain();
  }

  void busy_ones_keep_their_places() {
    serve_replacing();
    const Client begun = connect(), waiting = connect(), slow = connect();
    begun->say("ha");
    waiting->say("later\n");
    slow->say("lend\n");
    CHECK(run([&] { return shared.waiting.size() == 1 && shared.line_count == 5; }));
    CHECK(run([&] { return clients.received_bytes.read() == 3 * 6 + 2 + 6 + 5; }));
    CHECK(is_refused());
    CHECK_EQUAL(0, clients.connections_replaced.read());
    begun->say("lf\n");
    STRCMP_EQUAL("half\n", hear(begun, 5).c_str());
    shared.finish();
    STRCMP_EQUAL("later\n", hear(waiting, 6).c_str());
    LONGS_EQUAL(shared.large.size(), hear(slow, shared.large.size()).size());
    drain();
  }

  // A session is over, and its client has not got all of the last reply.
  void one_whose_reply_is_on_its_way_keeps_its_place() {
    serve_replacing();
    const Client begun = connect(), other = connect(), ending = connect();
    begun->say("ha");
    other->say("ha");
    CHECK(run([&] { return clients.received_bytes.read() == 3 * 6 + 2 * 2; }));
    ending->say("lend\nbye\n");
    size_t heard_bytes = 0;
    CHECK(run([&] {
      heard_bytes += ending->hear_now().size();
      return clients.sent_bytes.read() == 3 * 6 + shared.large.size() + 4;
    }));
    CHECK(is_refused());
    heard_bytes += hear_all(ending).size();
    LONGS_EQUAL(shared.large.size() + 4, heard_bytes);
    CHECK_EQUAL(0, clients.connections_replaced.read());
    drain();
  }

  // The session of an idle client has more to do once its client is gone, perhaps for ever.
  void one_that_waits_has_no_successor() {
    serve_replacing();
    Client all[kConnections];
    for (Client& client : all) client = connect();
    shared.waits_as_left = true;
    CHECK(is_refused());
    CHECK_EQUAL(1, clients.connections_replaced.read());
    CHECK_EQUAL(1, clients.connections_refused.read());
    CHECK_EQUAL(kConnections, clients.connections_open.read());
    shared.waits_as_left = false;
    shared.left->go_on();
    CHECK(run([&] { return clients.connections_open.read() == kConnections - 1; }));
    expect_answer(connect(), "next\n");
    drain();
  }

  // A client waits for a place, and the drain begins.
  void a_successor_is_closed_by_the_end() {
    serve_replacing();
    Client all[kConnections];
    for (Client& client : all) client = silent_client();
    CHECK(run([&] { return clients.connections_open.read() == kConnections; }));
    const Client next = silent_client();
    CHECK(run([&] { return clients.connections_replaced.read() == 1; }));
    server->end();
    CHECK(is_empty() && server->is_drained());
    STRCMP_EQUAL("", hear_all(next).c_str());
    listener.close();
  }

  // Each limit is for clients that do nothing at all, so it does not matter how fast this is.
  void an_idle_one_is_closed() {
    patience.idle_ns_max = 20 * kNsPerMs;
    serve();
    const Client client = silent_client();
    STRCMP_EQUAL("", hear_all(client).c_str());
    CHECK_EQUAL(1, clients.connections_timed_out.read());
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  void half_a_request_is_ended() {
    patience.slow_ns_max = 20 * kNsPerMs;
    serve();
    const Client idle = silent_client(), half = silent_client();
    half->say("ha");
    STRCMP_EQUAL("late\n", hear_all(half).c_str());
    CHECK(half->is_at_end);
    CHECK_EQUAL(1, clients.connections_timed_out.read());
    CHECK(!idle->has_ended());  // it has another limit
    drain();
  }

  void one_that_does_not_read_is_closed() {
    patience.slow_ns_max = 20 * kNsPerMs;
    serve();
    const Client client = silent_client();
    client->say("lend\n");
    CHECK(run([&] { return clients.connections_timed_out.read() == 1 && is_empty(); }));
    LONGS_EQUAL(1, shared.released_count);
    drain();
  }

  // The server waits for itself, not for the client.
  void one_that_waits_has_no_limit() {
    patience = {.slow_ns_max = kNsPerMs, .idle_ns_max = 500 * kNsPerSecond};
    serve();
    const Client client = silent_client(), idle = silent_client();
    client->say("later\n");
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    const uint64_t end_ns = monotonic_ns() + 20 * kNsPerMs;
    CHECK(run([&] { return monotonic_ns() > end_ns; }));
    CHECK_EQUAL(0, clients.connections_timed_out.read());
    shared.finish();
    STRCMP_EQUAL("later\n", hear(client, 6).c_str());
    drain();
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(StreamPatience, PatienceBodies);

BP_BOTH_BACKENDS(StreamPatience, ThePlaceOfASilentOneIsANewOnes, the_place_of_a_silent_one())
BP_BOTH_BACKENDS(StreamPatience, TheLastOfACrowdIsServed, a_crowd_of_silent_ones())
BP_BOTH_BACKENDS(StreamPatience, BusyOnesKeepTheirPlaces, busy_ones_keep_their_places())
BP_BOTH_BACKENDS(StreamPatience, OneWhoseReplyIsOnItsWayKeepsItsPlace,
                 one_whose_reply_is_on_its_way_keeps_its_place())
BP_BOTH_BACKENDS(StreamPatience, OneThatWaitsHasNoSuccessor, one_that_waits_has_no_successor())
BP_BOTH_BACKENDS(StreamPatience, TheEndClosesASuccessor, a_successor_is_closed_by_the_end())
BP_BOTH_BACKENDS(StreamPatience, AnIdleOneIsClosed, an_idle_one_is_closed())
BP_BOTH_BACKENDS(StreamPatience, HalfARequestIsEnded, half_a_request_is_ended())
BP_BOTH_BACKENDS(StreamPatience, OneThatDoesNotReadIsClosed, one_that_does_not_read_is_closed())
BP_BOTH_BACKENDS(StreamPatience, OneThatWaitsHasNoLimit, one_that_waits_has_no_limit())
