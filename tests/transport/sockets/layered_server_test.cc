// A server whose connections go through a layer: all that holds without one, clients with and
// without a layer at one listener, and layers that fail or do not end.
#include "transport/sockets/stream_server.h"

#include <memory>
#include <string>
#include <utility>

#include "tests/transport/sockets/flip_layer.h"
#include "tests/transport/sockets/stream_server_bodies.h"

using namespace bedplate;

namespace {

class FlipClient final : public ServerClient {
 public:
  using ServerClient::ServerClient;

 private:
  std::string encoded(const std::string& text) override {
    return (std::exchange(has_greeted_, true) ? "" : "#") + flipped(text);
  }
  std::string decoded(const std::string& wire) override {
    std::string text = flipped(wire);
    if (wire.ends_with('.')) {
      has_heard_farewell = true;
      text.pop_back();
    }
    return text;
  }
  std::string farewell() override { return "."; }

  bool has_greeted_ = false;
};

}  // namespace

class LayeredServerBodies : public ServerBodies {
 public:
  std::unique_ptr<FlipLayers> flip_layers;

  StreamLayers* make_layers() override {
    flip_layers = std::make_unique<FlipLayers>(*sockets);
    flip_layers->use = use;
    return flip_layers.get();
  }
  Client make_client(Fd fd) override { return std::make_shared<FlipClient>(std::move(fd)); }
  Client plain_client() { return add(std::make_shared<ServerClient>(connect_to(address))); }

  LayerUse use = LayerUse::kRequired;

  // A listener that offers the layer tells its clients apart by their first byte.
  void offered() {
    use = LayerUse::kOffered;
    serve();
    const Client layered = connect();
    const Client plain = plain_client();
    plain->say("plain\n");
    STRCMP_EQUAL("plain\n", hear(plain, 6).c_str());
    layered->say("layered\n");
    STRCMP_EQUAL("layered\n", hear(layered, 8).c_str());
    // The first byte of a connection decides, and no later one.
    const std::string line = "#" + flipped("text") + "\n";
    plain->say(line);
    STRCMP_EQUAL(line.c_str(), hear(plain, line.size()).c_str());
    plain->say("bye\n");
    STRCMP_EQUAL("bye\n", hear_all(plain).c_str());
    CHECK(plain->is_at_end && !plain->has_heard_farewell);
    plain->fd.close();
    CHECK(run([&] { return clients.connections_open.read() == 1; }));
    const Client next = plain_client();  // in a slot that had a layer, or had none
    next->say("next\n");
    STRCMP_EQUAL("next\n", hear(next, 5).c_str());
    drain();
  }

  // Nothing of it reaches the session.
  void required() {
    serve();
    const Client plain = plain_client();
    plain->say("plain\n");
    STRCMP_EQUAL("!", hear_all(plain).c_str());
    CHECK(plain->is_at_end);
    LONGS_EQUAL(0, shared.line_count);
    plain->fd.close();
    CHECK(run([&] { return is_empty(); }));
    LONGS_EQUAL(1, shared.reset_count);
    connect();
    drain();
  }

  // A reset would discard the reason.
  void its_failure_reaches_a_peer_that_sends() {
    serve();
    const Client client = connect();
    client->say("later\n");
    CHECK(run([&] { return shared.waiting.size() == 1; }));
    const std::string garbage(60'000, 'x');
    LONGS_EQUAL(garbage.size(), ::send(client->fd.number(), garbage.data(), garbage.size(), 0));
    std::string heard = hear_all(client);
    CHECK(client->is_at_end && !client->has_heard_farewell);
    STRCMP_EQUAL(flipped("!").c_str(), heard.c_str());
    CHECK(!shared.waiting[0]->is_wanted());
    client->fd.close();
    shared.finish();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // The peer has a second for the end of the layer, too.
  void its_end_does_not_last_for_ever() {
    serve();
    for (FlipLayer& each : flip_layers->all) each.never_ends = true;
    const Client client = connect();
    client->say("bye\n");
    STRCMP_EQUAL("bye\n", hear_all(client).c_str());
    CHECK(run([&] { return is_empty(); }));
    for (FlipLayer& each : flip_layers->all) each.never_ends = false;
    connect();
    drain();
  }

  // Two clients have sent nothing, or no whole beginning.
  void drains_before_the_layer_has_begun() {
    serve();
    const Client silent = plain_client(), begun = plain_client();
    begun->say("#");
    CHECK(run([&] { return clients.connections_open.read() == 2; }));
    drain([&] {
      for (const Client* each : {&silent, &begun}) {
        if (!(*each)->has_ended()) (*each)->hear_now();
      }
      return silent->has_ended() && begun->has_ended();
    });
    CHECK(silent->is_at_end && begun->is_at_end);
    LONGS_EQUAL(0, shared.line_count);
  }

  // No byte has told yet if they use the layer.
  void drains_where_it_is_offered() {
    use = LayerUse::kOffered;
    serve();
    const Client silent = plain_client();
    CHECK(run([&] { return clients.connections_open.read() == 1; }));
    drain([&] {
      if (!silent->has_ended()) silent->hear_now();
      return silent->has_ended();
    });
    CHECK(silent->is_at_end);
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(LayeredServer, LayeredServerBodies);

BP_SERVER_TESTS(LayeredServer)
BP_BOTH_BACKENDS(LayeredServer, ServesClientsWithAndWithoutALayerWhereItIsOffered, offered())
BP_BOTH_BACKENDS(LayeredServer, RefusesClientsWithoutALayerWhereItIsRequired, required())
BP_BOTH_BACKENDS(LayeredServer, TheFailureOfALayerReachesAPeerThatSends,
                 its_failure_reaches_a_peer_that_sends())
BP_BOTH_BACKENDS(LayeredServer, TheEndOfALayerDoesNotLastForEver, its_end_does_not_last_for_ever())
BP_BOTH_BACKENDS(LayeredServer, DrainsBeforeTheLayerHasBegun, drains_before_the_layer_has_begun())
BP_BOTH_BACKENDS(LayeredServer, DrainsWhereTheLayerIsOffered, drains_where_it_is_offered())
