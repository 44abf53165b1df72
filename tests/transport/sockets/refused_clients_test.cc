// A server of lines that has words for clients that it does not serve: those beyond its
// connections, and those that it does not want.
#include "transport/sockets/refused_clients.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/sockets/stream_server.h"

#include "tests/transport/sockets/stream_server_bodies.h"

using namespace bedplate;

class RefusingBodies : public ServerBodies {
 public:
  bool refuses_all = false;
  int refused_fd = -1;

  void adjust(StreamServerOptions* options) override {
    options->refusals = {
        .refusal =
            [](void* context, int fd, std::span<char> room) noexcept {
              auto& self = *static_cast<RefusingBodies*>(context);
              self.refused_fd = fd;
              return self.refuses_all ? written("not you\n", room) : "";
            },
        .too_many = [](void*,
                       std::span<char> room) noexcept { return written("too many\n", room); },
        .context = this};
  }
  static std::string_view written(std::string_view words, std::span<char> room) noexcept {
    return {room.data(), words.copy(room.data(), room.size())};
  }
  Client plain_client() { return add(std::make_shared<ServerClient>(connect_to(address))); }
  // Checks that the client gets `words` and an orderly end although it sends a request. If the
  // server closed without reading the request, the kernel would reset the connection, and `words`
  // might be lost.
  void expect_told_though_it_asks(const char* words) {
    const Client client = plain_client();
    client->say(std::string(3000, 'x'));
    STRCMP_EQUAL(words, hear_all(client).c_str());
    CHECK(client->is_at_end && !client->is_reset);
  }
  // Closes what is left, and listens no more.
  void end() {
    server->end();
    CHECK_EQUAL(0, clients.connections_open.read());
    listener.close();
  }

  void one_too_many_is_told() {
    serve();
    Client all[kConnections];
    for (Client& client : all) client = connect();
    expect_told_though_it_asks("too many\n");
    CHECK_EQUAL(1, clients.connections_refused.read());
    // More clients than the server still reads from after it has refused them.
    std::vector<Client> others;
    for (uint32_t i = 0; i < RefusedClients::kCountMax + 2; ++i) others.push_back(plain_client());
    for (const Client& other : others) STRCMP_EQUAL("too many\n", hear_all(other).c_str());
    all[0]->say("one\n");
    STRCMP_EQUAL("one\n", hear(all[0], 4).c_str());
    end();
  }

  void one_that_may_not_ask_is_told() {
    refuses_all = true;
    serve();
    expect_told_though_it_asks("not you\n");
    CHECK(refused_fd >= 0);
    CHECK_EQUAL(0, clients.connections_total.read() + clients.connections_refused.read());
    refuses_all = false;
    connect();
    end();
  }

  // The clock of the timers runs ahead.
  void one_that_stays_is_closed() {
    refuses_all = true;
    serve();
    const int before_count = count_fds();
    const Client client = plain_client();
    STRCMP_EQUAL("not you\n", hear(client, 8).c_str());
    loop->own_timers().expire(monotonic_ns() + 2 * RefusedClients::kLingerNs);
    CHECK(run([&] { return count_fds() == before_count + 1; }));  // the client's own
    end();
  }

  void ends_with_refused_ones() {
    refuses_all = true;
    serve();
    const Client client = plain_client();
    STRCMP_EQUAL("not you\n", hear(client, 8).c_str());
    end();
    CHECK(client->fd.is_open());
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(RefusedClients, RefusingBodies);

BP_BOTH_BACKENDS(RefusedClients, OneTooManyIsTold, one_too_many_is_told())
BP_BOTH_BACKENDS(RefusedClients, OneThatMayNotAskIsToldAndHasNoConnection,
                 one_that_may_not_ask_is_told())
BP_BOTH_BACKENDS(RefusedClients, OneThatStaysIsClosed, one_that_stays_is_closed())
BP_BOTH_BACKENDS(RefusedClients, TheEndClosesThem, ends_with_refused_ones())
