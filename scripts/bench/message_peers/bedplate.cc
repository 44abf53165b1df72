// Bedplate. latency: a bare fast box; am_send: an endpoint with a box, and a handler on the other
// side; am_send_idle: the same, with five more idle groups in each messenger; rate16: 16 members in
// one process, each with an endpoint and a box; loan, read_large: blocks of the pool lent and
// returned; bandwidth: puts into the pool; put_copied, put_asleep: puts into memory of the pool
// that the sender may only read, while the target spins or sleeps; cma: a message, and a get from
// the sender's private memory; lane BURST: the FIFO between shards.
#include <memory>
#include <vector>

#include "transport/loop/spsc_fifo_datapath.h"
#include "transport/messages/messenger.h"
#include "transport/shm/endpoint/shm_provider.h"

#include "peer.h"

using namespace bedplate;

namespace {

constexpr AmId kData = 1;
constexpr uint32_t kBudget = 64;
constexpr PoolId kPoolId = {1, 1};

constexpr uint32_t kIdleGroups = 5;

struct Member {
  Messenger messenger;
  ShmProvider shm;
  Endpoint *to_other = nullptr;
  ShmProvider idle[kIdleGroups];
};

struct Group {
  MembersTable *table = nullptr;
  GroupSegment segment;
};

struct run *the_run;
uint64_t handled;
uint64_t returned;
Member members[1 + kConnections];
Group group;
Group idle_groups[kIdleGroups];
PinnedPool lending(kPoolBase + 200 * kRegionBytes);
std::span<std::byte> block;
bool is_read;
Completion on_return = {[](Completion &, Outcome) noexcept { ++returned; }};

void check(bool is_good, const char *doing) {
  if (!is_good) fail(doing, "Bedplate refused");
}

// ---- a bare box in each direction ----

FastBoxProducer producer;
FastBoxConsumer consumer;

void send_box(struct run *run, uint64_t number) {
  MessageSlot *slot = nullptr;
  const auto bytes = static_cast<uint32_t>(run->bytes);
  while ((slot = producer.next_slot()) == nullptr) {
  }
  if (run->bytes <= kInlineBytesMax) {
    write_words(slot->payload, run->words, number);
    producer.publish(*slot, {SlotKind::kInline, kData, bytes, 0});
    return;
  }
  PayloadOffset offset;
  std::byte *area = nullptr;
  while ((area = producer.next_area(bytes, &offset)) == nullptr) {
  }
  write_words(area, run->words, number);
  std::memcpy(slot->payload, &offset, sizeof offset);
  producer.publish(*slot, {SlotKind::kArea, kData, bytes, 0});
  producer.prefetch_area(bytes);  // like an endpoint
}

void receive_box(struct run *run, uint64_t) {
  SlotHeader header;
  const MessageSlot *slot = nullptr;
  while ((slot = consumer.peek(&header)) == nullptr) {
  }
  const std::byte *payload = slot->payload;
  if (header.kind == SlotKind::kArea) {
    PayloadOffset offset;
    std::memcpy(&offset, slot->payload, sizeof offset);
    payload = consumer.area_payload(offset, header.bytes);
  }
  read_words(run, payload);
  consumer.consume();
}

// ---- endpoints ----

uint64_t *message_buffer;

void send_am(struct run *run, uint64_t number) {
  write_words(message_buffer, run->words, number);
  const std::span<const std::byte> payload = {reinterpret_cast<std::byte *>(message_buffer),
                                              run->bytes};
  while (members[run->side].to_other->am_send(kData, payload) != SendStatus::kDone) {
    members[run->side].messenger.poll(kBudget);
  }
}

void receive_am(struct run *run, uint64_t) {
  for (const uint64_t before = handled; handled == before;) {
    members[run->side].messenger.poll(kBudget);
  }
}

void handle_am(void *, const Message &message) noexcept {
  ++handled;
  read_words(the_run, message.payload.data());
}

// ---- loans: a number is sent with the block; in read_large each word is also written and read
// ----

void send_loan(struct run *run, uint64_t number) {
  Member &self = members[run->side];
  if (is_read) write_words(block.data(), run->words, number);
  const auto header = std::as_bytes(std::span(&number, 1));
  while (self.to_other->am_send_loan(kData, header, block, &on_return) != SendStatus::kPending) {
    self.messenger.poll(kBudget);
  }
}

void handle_loan(void *, const Message &message) noexcept {
  ++handled;
  read_words(the_run, is_read ? message.loan.memory.data() : message.payload.data());
  members[the_run->side].messenger.release(message.loan);
}

// ---- puts into the other side's segment; gets from its private memory ----

RemoteMemory remote;
std::unique_ptr<SingleCopy> single_copy;

void use_cma() {
  constexpr SingleCopyKind kOrder[] = {SingleCopyKind::kCma};
  single_copy = choose_single_copy(kOrder).taken;
  check(single_copy != nullptr, "using cma");
}

void put(struct run *run, uint64_t number) {
  write_words(message_buffer, run->words, number);
  const std::span<const std::byte> from = {reinterpret_cast<std::byte *>(message_buffer),
                                           run->bytes};
  check(members[0].to_other->put(from, remote, nullptr) == SendStatus::kDone, "putting");
}

void flush() { members[0].to_other->flush(nullptr); }

void send_notice(struct run *run, uint64_t number) {
  write_words(message_buffer, run->words, number);
  while (members[run->side].to_other->am_send(kData, {}) != SendStatus::kDone) {
    members[run->side].messenger.poll(kBudget);
  }
}

// Receives into another buffer than the send buffer: a receiver keeps both.
void receive_private(struct run *run, uint64_t number) {
  std::byte *into = reinterpret_cast<std::byte *>(message_buffer) + run->bytes;
  receive_am(run, number);
  check(members[run->side].to_other->get({into, run->bytes}, remote, nullptr) == SendStatus::kDone,
        "getting");
  read_words(run, into);
}

void count_notice(void *, const Message &) noexcept { ++handled; }

// Each side sends the other the address of its memory.
void exchange_memory(struct run *run, std::span<std::byte> memory) {
  auto exposed = members[run->side].to_other->expose(memory);
  check(exposed.ok(), "exposing memory");
  exchange(run, &exposed.value(), &remote, sizeof remote);
}

// ---- 16 members that send to one member ----

uint64_t offer(struct run *run, uint64_t first, uint64_t count) {
  uint64_t number = first;
  for (uint64_t i = 0; i < kConnections && i < count; ++i) {
    Member &self = members[1 + i];
    write_words(message_buffer, run->words, number);
    const std::span<const std::byte> payload = {reinterpret_cast<std::byte *>(message_buffer),
                                                run->bytes};
    if (self.to_other->am_send(kData, payload) == SendStatus::kDone) ++number;
    else self.messenger.poll(kBudget);
  }
  return number - first;
}

uint64_t poll_member(struct run *) {
  const uint64_t before = handled;
  members[0].messenger.poll(kBudget);
  return handled - before;
}

void add_provider(Member &member, ShmProvider &provider, const Group &its_group, uint32_t index) {
  ShmProviderOptions options;
  options.segment = its_group.segment;
  options.members = its_group.table;
  options.member = index;
  options.pool = &lending;
  options.single_copy = single_copy.get();
  check(provider.create(options, member.messenger.dispatcher()).ok(), "creating a member");
  member.messenger.add_provider(provider);
}

void create_member(uint32_t index, AmHandler handler) {
  Member &member = members[index];
  member.messenger.set_handler(kData, handler);
  add_provider(member, member.shm, group, index);
  for (uint32_t i = 0; i < kIdleGroups && idle_groups[i].table != nullptr; ++i) {
    add_provider(member, member.idle[i], idle_groups[i], index);
  }
}

// Requires: the peer is created; its published record gives access to its memory.
void connect_member(uint32_t index, uint32_t peer) {
  auto endpoint = members[index].messenger.connect({peer});
  check(endpoint.ok(), "connecting");
  members[index].to_other = endpoint.value();
}

// One member on each side.
void create_pair(struct run *run, AmHandler handler) {
  const auto side = static_cast<uint32_t>(run->side);
  create_member(side, handler);
  meet(run);
  connect_member(side, 1 - side);
}

Group create_group(uint32_t member_count) {
  GroupShape shape;
  shape.member_count = member_count;
  shape.box_count = default_box_count(member_count);
  const uint64_t bytes = GroupLayout(shape).bytes();
  const uint64_t table_bytes = MembersTable::bytes_for(member_count);
  Group made;
  made.table = MembersTable::create(
      {static_cast<std::byte *>(shared_memory(table_bytes)), table_bytes}, member_count, kPoolId);
  BP_ASSERT(made.table->hold_owner_life().ok());
  made.segment = GroupSegment::create({static_cast<std::byte *>(shared_memory(bytes)), bytes},
                                      shape, kPoolId, BellFence::kSleeper);
  return made;
}

// Member 0 belongs to side 0, all others to side 1. `may_write`: the other's memory.
void admit_members(struct run *run, bool may_write) {
  const pid_t own = getpid();
  pid_t other = 0;
  exchange(run, &own, &other, sizeof own);
  SegmentRights rights = SegmentRights::all();
  if (!may_write) {
    for (uint64_t &bits : rights.writable) bits = 0;
  }
  const auto admit = [&](MembersTable &table) {
    for (uint32_t i = 0; i < table.member_count(); ++i) {
      table.begin_join(i, static_cast<uint32_t>(i == 0 ? own : other), MemberName("bench"), rights);
      table.set_state(i, MemberState::kAlive);
    }
  };
  if (run->side == 0) {
    admit(*group.table);
    for (Group &idle : idle_groups) {
      if (idle.table != nullptr) admit(*idle.table);
    }
  }
  meet(run);
}

// ---- the lane ----

using Lane = SpscFifo<uint64_t>;
Lane *lane;
constexpr size_t kBurstMax = 64;

uint64_t push_items(struct run *run, uint64_t first, uint64_t count) {
  if (run->bytes == 1) return lane->try_push(first);
  uint64_t items[kBurstMax];
  const uint64_t n = count < run->bytes ? count : run->bytes;
  for (uint64_t i = 0; i < n; ++i) items[i] = first + i;
  for (uint64_t done = 0; done < n;) done += lane->push_batch({items + done, n - done});
  return n;
}

uint64_t pop_items(struct run *run) {
  uint64_t items[kBurstMax];
  if (run->bytes == 1) {
    if (!lane->try_pop(items)) return 0;
    run->sum += items[0];
    return 1;
  }
  const uint64_t n = lane->pop_batch({items, run->bytes});
  for (uint64_t i = 0; i < n; ++i) run->sum += items[i];
  return n;
}

void run_pair(struct run *run, bool lends, message_function send, message_function receive) {
  const AmHandler handler = {lends ? handle_loan : handle_am, nullptr};
  create_pair(run, handler);
  meet(run);
  ping_pong(run, send, receive);
}

}  // namespace

int main(int argc, char **argv) {
  const struct run asked = parse_arguments(argc, argv);
  const bool sleeps = is_kind(&asked, "put_asleep");
  const bool copies = sleeps || is_kind(&asked, "put_copied");
  const bool puts = copies || is_kind(&asked, "bandwidth");
  const bool lends = is_kind(&asked, "loan") || is_kind(&asked, "read_large");
  group = create_group(is_kind(&asked, "rate16") ? 1 + kConnections : 2);
  const bool has_idle = is_kind(&asked, "am_send_idle");
  for (Group &idle : idle_groups) {
    if (has_idle) idle = create_group(2);
  }
  auto *boxes = static_cast<std::byte *>(shared_memory(2 * 4096));
  const uint64_t lane_bytes = Lane::bytes_for(1024);
  lane = Lane::create({static_cast<std::byte *>(shared_memory(lane_bytes)), lane_bytes}, 1024);
  Segment *blocks[2] = {};
  for (int i = 0; (lends || puts) && i < 2; ++i) {
    auto made =
        lending.create_segment(i == 0 ? "a" : "b", align_up(asked.bytes, 4096), PageSize::k4KiB, 1);
    check(made.ok(), "making a segment");
    blocks[i] = made.value();
  }
  struct run run = start_pair(argc, argv);
  the_run = &run;
  admit_members(&run, !copies);
  message_buffer = private_memory(2 * run.bytes);
  const int side = run.side;
  if (lends || puts) block = blocks[side]->memory().first(run.bytes);
  is_read = is_kind(&run, "read_large");
  if (!is_read && lends) run.words = 1;
  producer = FastBoxProducer(FastBox(boxes + 4096 * side, 4096));
  consumer = FastBoxConsumer(FastBox(boxes + 4096 * (1 - side), 4096));
  if (is_kind(&run, "latency")) {
    ping_pong(&run, send_box, receive_box);
  } else if (is_kind(&run, "am_send") || has_idle) {
    run_pair(&run, false, send_am, receive_am);
  } else if (lends) {
    run_pair(&run, true, send_loan, receive_am);
  } else if (puts) {
    if (copies) use_cma();
    create_pair(&run, {});
    exchange_memory(&run, block);
    if (side == 0) put_stream(&run, put, flush);
    (sleeps ? meet_asleep : meet)(&run);
    if (side == 1) check_last_put(&run, block.data());
  } else if (is_kind(&run, "cma")) {
    use_cma();
    create_pair(&run, {count_notice, nullptr});
    exchange_memory(&run, {reinterpret_cast<std::byte *>(message_buffer), run.bytes});
    ping_pong(&run, send_notice, receive_private);
  } else if (is_kind(&run, "rate16")) {
    if (side == 0) create_member(0, {handle_am, nullptr});
    for (uint32_t i = 1; side == 1 && i <= kConnections; ++i) {
      create_member(i, {handle_am, nullptr});
      connect_member(i, 0);
    }
    meet(&run);
    if (side == 1) send_stream(&run, offer);
    else receive_stream(&run, poll_member);
  } else if (is_kind(&run, "lane") && run.bytes <= kBurstMax) {
    meet(&run);
    if (side == 1) send_stream(&run, push_items);
    else receive_stream(&run, pop_items);
  } else {
    unknown_kind(&run);
  }
  return finish(&run);
}
