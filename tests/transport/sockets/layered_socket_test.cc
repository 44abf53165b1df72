// A socket without a layer, with one, and in between: it moves bytes, ends and closes alike.
#include "transport/sockets/layered_socket_datapath.h"

#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include <sys/socket.h>

#include "tests/transport/sockets/flip_layer.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

class LayeredSocketBodies : public SocketsFixture {
 public:
  std::unique_ptr<FlipLayers> layers;
  std::unique_ptr<LayeredSocket> socket;
  iovec receive_piece = {};
  iovec send_piece = {};
  char heard[1000] = {};
  std::string said;
  int64_t received = 0;
  int64_t sent = 0;
  uint32_t receive_count = 0;
  uint32_t send_count = 0;
  uint32_t said_end_count = 0;

  void begin() {
    layers = std::make_unique<FlipLayers>(*sockets);
    socket = std::make_unique<LayeredSocket>(
        *sockets, &layers->make(),
        LayeredSocket::Callbacks{.received =
                                     [](void* self, int64_t result) noexcept {
                                       auto& its = *static_cast<LayeredSocketBodies*>(self);
                                       its.received = result;
                                       ++its.receive_count;
                                     },
                                 .sent =
                                     [](void* self, int64_t result) noexcept {
                                       auto& its = *static_cast<LayeredSocketBodies*>(self);
                                       its.sent = result;
                                       ++its.send_count;
                                     },
                                 .said_end =
                                     [](void* self) noexcept {
                                       ++static_cast<LayeredSocketBodies*>(self)->said_end_count;
                                     },
                                 .context = this});
    connect();
  }
  void connect() {
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    peer = Fd(fds[1]);
    LONGS_EQUAL(0, socket->open(fds[0], this));
    CHECK(socket->is_open() && socket->has_layer() && !socket->is_layered());
    CHECK(socket->listener() == this);
  }
  template <typename Condition>
  bool run(Condition condition) {
    return run_until([&] {
      layers->poll(64);
      return condition();
    });
  }
  // Ends all that is in flight, if anything is.
  void close() {
    if (socket->is_receiving() || socket->is_sending()) socket->abort();
    CHECK(
        run([&] { return !socket->is_receiving() && !socket->is_sending() && socket->say_end(); }));
    socket->close();
    CHECK_FALSE(socket->is_open());
    peer.close();
  }

  void receive() {
    receive_piece = {heard, sizeof heard};
    const uint32_t before = receive_count;
    socket->receive({&receive_piece, 1}, 1);
    CHECK(socket->is_receiving());
    LONGS_EQUAL(before, receive_count);
  }
  // Returns the bytes that arrive if the peer sends `wire`.
  std::string hear(const std::string& wire) {
    receive();
    say(wire);
    CHECK(run([&] { return !socket->is_receiving(); }));
    return received > 0 ? std::string(heard, static_cast<size_t>(received)) : std::string();
  }
  void say(const std::string& wire) {
    LONGS_EQUAL(wire.size(), ::send(peer.number(), wire.data(), wire.size(), MSG_NOSIGNAL));
  }
  // Returns the bytes that the peer gets if `text` is sent.
  std::string wire_of(const std::string& text) {
    said = text;
    send_piece = {said.data(), said.size()};
    const uint32_t before = send_count;
    socket->send({&send_piece, 1});
    LONGS_EQUAL(before, send_count);
    CHECK(run([&] { return !socket->is_sending(); }));
    LONGS_EQUAL(text.size(), sent);
    return read_wire();
  }
  std::string read_wire() {
    char part[1000];
    return {part, read_now(peer.number(), reinterpret_cast<std::byte*>(part), sizeof part)};
  }

  void without_a_layer() {
    begin();
    STRCMP_EQUAL("hello", hear("hello").c_str());
    STRCMP_EQUAL("world", wire_of("world").c_str());
    CHECK(socket->say_end());
    close();
    LONGS_EQUAL(0, said_end_count);
  }

  // As STARTTLS does.
  void starts_its_layer_in_the_middle() {
    begin();
    STRCMP_EQUAL("start", hear("start").c_str());
    STRCMP_EQUAL("go", wire_of("go").c_str());
    socket->start_layer();
    CHECK(socket->is_layered());
    STRCMP_EQUAL("hello", hear("#" + flipped("hello")).c_str());
    CHECK(flipped("world") == wire_of("world"));
    close();
    LONGS_EQUAL(1, said_end_count);
    connect();  // the next connection begins without
    STRCMP_EQUAL("hello", hear("hello").c_str());
    close();
  }

  void gives_its_layer_what_came_early() {
    begin();
    STRCMP_EQUAL(("#" + flipped("he")).c_str(), hear("#" + flipped("he")).c_str());
    const std::string early(heard, 3);
    socket->start_layer(std::as_bytes(std::span(early)));
    STRCMP_EQUAL("he", hear("").c_str());
    STRCMP_EQUAL("llo", hear(flipped("llo")).c_str());
    close();
  }

  void ends_a_receive(bool is_layered) {
    begin();
    if (is_layered) {
      socket->start_layer();
      STRCMP_EQUAL("x", hear("#" + flipped("x")).c_str());
    }
    receive();
    socket->end_receive();
    socket->end_receive();  // it may be repeated
    CHECK(run([&] { return !socket->is_receiving(); }));
    LONGS_EQUAL(-ECANCELED, received);
    say(is_layered ? flipped("late") : "late");
    receive();
    socket->end_receive();  // it has come
    CHECK(run([&] { return !socket->is_receiving(); }));
    LONGS_EQUAL(4, received);
    receive();
    socket->stop_receiving();
    CHECK(run([&] { return !socket->is_receiving(); }));
    LONGS_EQUAL(0, received);
    close();
  }

  void tells_that_nothing_more_comes() {
    begin();
    said = "last";
    send_piece = {said.data(), said.size()};
    socket->send({&send_piece, 1});
    CHECK(run([&] { return !socket->is_sending(); }));
    CHECK(socket->has_unacknowledged());
    socket->stop_sending();
    STRCMP_EQUAL("last", read_wire().c_str());
    CHECK_FALSE(socket->has_unacknowledged());
    char byte = 0;
    LONGS_EQUAL(0, recv(peer.number(), &byte, 1, MSG_DONTWAIT));
    STRCMP_EQUAL("late", hear("late").c_str());
    close();
  }

  void goes_on_without_its_layer() {
    begin();
    socket->start_layer();
    STRCMP_EQUAL("hello", hear("#" + flipped("hello")).c_str());
    CHECK_FALSE(socket->say_end());
    CHECK(run([&] { return said_end_count > 0; }));
    CHECK(socket->say_end());
    LONGS_EQUAL(0, socket->remove_layer());
    CHECK_FALSE(socket->is_layered());
    STRCMP_EQUAL(".", read_wire().c_str());
    STRCMP_EQUAL("hello", hear("hello").c_str());
    close();
  }

  void aborts(bool is_layered) {
    begin();
    if (is_layered) socket->start_layer();
    receive();
    said.assign(16 << 20, 'x');  // more than any socket buffers
    send_piece = {said.data(), said.size()};
    socket->send({&send_piece, 1});
    for (int i = 0; i < 20; ++i) {
      layers->poll(64);
      pump();
    }
    CHECK(socket->is_receiving() && socket->is_sending());
    socket->abort();
    CHECK(run([&] { return !socket->is_receiving() && !socket->is_sending(); }));
    CHECK(sent < 0 && received <= 0);
    close();
  }

  // epoll cannot watch it.
  void refuses_a_descriptor() {
    begin();
    close();
    const Fd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (std::string(sockets->name()) != "epoll") return;
    LONGS_EQUAL(EPERM, socket->open(other.number()));
    CHECK_FALSE(socket->is_open());
    connect();
    close();
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(LayeredSocket, LayeredSocketBodies);

BP_BOTH_BACKENDS(LayeredSocket, MovesBytesWithoutALayer, without_a_layer())
BP_BOTH_BACKENDS(LayeredSocket, StartsItsLayerInTheMiddle, starts_its_layer_in_the_middle())
BP_BOTH_BACKENDS(LayeredSocket, GivesItsLayerWhatCameEarly, gives_its_layer_what_came_early())
BP_BOTH_BACKENDS(LayeredSocket, EndsAReceive, ends_a_receive(false))
BP_BOTH_BACKENDS(LayeredSocket, EndsAReceiveOfALayer, ends_a_receive(true))
BP_BOTH_BACKENDS(LayeredSocket, TellsThatNothingMoreComes, tells_that_nothing_more_comes())
BP_BOTH_BACKENDS(LayeredSocket, GoesOnWithoutItsLayer, goes_on_without_its_layer())
BP_BOTH_BACKENDS(LayeredSocket, Aborts, aborts(false))
BP_BOTH_BACKENDS(LayeredSocket, AbortsItsLayer, aborts(true))
BP_BOTH_BACKENDS(LayeredSocket, RefusesADescriptorThatCannotBeWatched, refuses_a_descriptor())
