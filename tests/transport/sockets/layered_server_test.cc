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

  bool is_in_clear = false;

 private:
  std::string encoded(const std::string& text) override {
    if (is_in_clear) return text;
    return (std::exchange(has_greeted_, true) ? "" : "#") + flipped(text);
  }
  std::string decoded(const std::string& wire) override {
    if (is_in_clear) return wire;
    std::string text = flipped(wire);
    if (wire.ends_with('.')) {
      has_heard_farewell = true;
      text.pop_back();
    }
    return text;
  }
  std::string farewell() override { return is_in_clear ? "" : "."; }

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

  // Clients of these begin in clear.
  std::shared_ptr<FlipClient> in_clear() {
    auto client = std::make_shared<FlipClient>(connect_to(address));
    client->is_in_clear = true;
    add(client);
    return client;
  }
  void serve_on_request() {
    use = LayerUse::kOffered;
    has_layer_on_request = true;
    serve();
  }

  void starts_on_request() {
    serve_on_request();
    const auto client = in_clear();
    client->say("#one\nstarttls\n");  // its first byte is not the layer's
    STRCMP_EQUAL("#one\nstarttls\n", hear(client, 14).c_str());
    client->is_in_clear = false;
    client->say("inside\nstarttls\nbye\n");
    STRCMP_EQUAL("inside\nstarttls\nbye\n", hear_all(client).c_str());
    check_farewell(*client);
    client->close_its_side();
    CHECK(run([&] { return is_empty(); }));
    const auto next = in_clear();  // in its slot
    next->say("next\nbye\n");
    STRCMP_EQUAL("next\nbye\n", hear_all(next).c_str());
    CHECK(next->is_at_end);
    drain();
  }

  // All replies are sent in clear before it, those of answers that come later, too.
  void starts_behind_answers() {
    serve_on_request();
    const auto client = in_clear();
    client->say("later\nstarttls\n");
    CHECK(run([&] { return shared.line_count == 2; }));
    shared.finish();
    STRCMP_EQUAL("later\nstarttls\n", hear(client, 15).c_str());
    client->is_in_clear = false;
    client->say("inside\n");
    STRCMP_EQUAL("inside\n", hear(client, 7).c_str());
    drain();
  }

  // The request comes while a reply is being sent, so that a receive is in flight when it is taken.
  void starts_behind_a_long_reply() {
    serve_on_request();
    const auto client = in_clear();
    client->say("lend\n");
    size_t heard_bytes = hear(client, 1).size();
    client->say("starttls\n");
    CHECK(run([&] { return clients.received_bytes.read() == 14; }));
    LONGS_EQUAL(1, shared.line_count);
    const size_t wanted_bytes = shared.large.size() + 9;
    heard_bytes += hear(client, wanted_bytes - heard_bytes).size();
    LONGS_EQUAL(wanted_bytes, heard_bytes);
    client->is_in_clear = false;
    client->say("inside\n");
    STRCMP_EQUAL("inside\n", hear(client, 7).c_str());
    drain();
  }

  // A third party may have put it there (CVE-2011-0411). The client does not even hear a reply.
  void refuses_text_behind_the_request() {
    serve_on_request();
    const auto client = in_clear();
    client->say("one\nstarttls\ninjected\n");
    STRCMP_EQUAL("", hear_all(client).c_str());
    LONGS_EQUAL(2, shared.line_count);
    CHECK_EQUAL(1, clients.connections_foreign.read());
    CHECK(run([&] { return is_empty(); }));
    const auto next = in_clear();
    next->say("starttls\n");
    STRCMP_EQUAL("starttls\n", hear(next, 9).c_str());
    drain();
  }

  // The same, behind the request: the layer gets it, and refuses it.
  void refuses_text_that_comes_before_the_layer() {
    serve_on_request();
    const auto client = in_clear();
    client->say("later\nstarttls\n");
    CHECK(run([&] { return shared.line_count == 2; }));
    client->say("injected\n");
    shared.finish();
    STRCMP_EQUAL("later\nstarttls\n!", hear_all(client).c_str());
    LONGS_EQUAL(2, shared.line_count);
    client->fd.close();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }

  // Its session wants the layer, and waits for an answer, while a receive is in flight: the
  // requests came while a long reply was being sent.
  std::shared_ptr<FlipClient> wanting_while_it_receives() {
    serve_on_request();
    auto client = in_clear();
    client->say("lend\n");
    const size_t heard_bytes = hear(client, 1).size();
    client->say("later\nstarttls\n");
    CHECK(run([&] { return clients.received_bytes.read() == 20; }));
    LONGS_EQUAL(1, shared.line_count);
    hear(client, shared.large.size() - heard_bytes);
    CHECK(run([&] { return shared.line_count == 3; }));
    return client;
  }
  void refuses_text_that_is_received_before_the_layer() {
    const auto client = wanting_while_it_receives();
    client->say("injected\n");
    CHECK(run([&] { return clients.received_bytes.read() == 29; }));
    shared.finish();
    STRCMP_EQUAL("later\nstarttls\n!", hear_all(client).c_str());
    LONGS_EQUAL(3, shared.line_count);
    client->fd.close();
    CHECK(run([&] { return is_empty(); }));
    drain();
  }
  // The client begins the layer before it has heard the reply.
  void takes_the_layers_beginning_early() {
    const auto client = wanting_while_it_receives();
    client->is_in_clear = false;
    client->say("inside\n");
    CHECK(run([&] { return clients.received_bytes.read() == 28; }));
    client->is_in_clear = true;
    shared.finish();
    STRCMP_EQUAL(("later\nstarttls\n" + flipped("inside\n")).c_str(), hear(client, 22).c_str());
    LONGS_EQUAL(4, shared.line_count);
    client->is_in_clear = false;
    drain();
  }

  void a_drain_forgoes_the_layer() {
    serve_on_request();
    const auto client = in_clear();
    client->say("later\nstarttls\n");
    CHECK(run([&] { return shared.line_count == 2; }));
    uint32_t rounds = 0;
    std::string heard;
    drain([&] {
      if (++rounds == 100) shared.finish();
      if (!client->has_ended()) heard += client->hear_now();
      return client->has_ended();
    });
    STRCMP_EQUAL("later\nstarttls\n", heard.c_str());
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
BP_BOTH_BACKENDS(LayeredServer, StartsALayerInMidConnection, starts_on_request())
BP_BOTH_BACKENDS(LayeredServer, StartsALayerBehindAnswersThatComeLater, starts_behind_answers())
BP_BOTH_BACKENDS(LayeredServer, StartsALayerBehindALongReply, starts_behind_a_long_reply())
BP_BOTH_BACKENDS(LayeredServer, RefusesTextBehindTheRequestForALayer,
                 refuses_text_behind_the_request())
BP_BOTH_BACKENDS(LayeredServer, RefusesTextThatComesBeforeTheLayer,
                 refuses_text_that_comes_before_the_layer())
BP_BOTH_BACKENDS(LayeredServer, RefusesTextThatIsReceivedBeforeTheLayer,
                 refuses_text_that_is_received_before_the_layer())
BP_BOTH_BACKENDS(LayeredServer, TakesTheBeginningOfALayerEarly, takes_the_layers_beginning_early())
BP_BOTH_BACKENDS(LayeredServer, ForgoesTheLayerInADrain, a_drain_forgoes_the_layer())
