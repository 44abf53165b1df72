#include "apps/kvd/operation_datapath.h"

#include <cstring>

#include "apps/kvd/request_datapath.h"
#include "platform/assert.h"
#include "platform/text_writer.h"

namespace bedplate::kvd {
namespace {

// Makes `text`, of a linked item, readable for the client's shard. Returns where it lies.
std::string_view keep(KeyedCache& cache, CacheItem& item, std::string_view text,
                      std::span<char> copy, Operation& operation) noexcept {
  if (text.size() <= copy.size()) {
    std::memcpy(copy.data(), text.data(), text.size());
    return {copy.data(), text.size()};
  }
  cache.pin(item);
  operation.item = &item;
  return text;
}

void get(const Environment& environment, Operation& operation, std::span<char> copy) noexcept {
  Items items(environment);
  CacheItem* const item = (operation.get & Form::kTouching) != 0
                              ? items.get_and_touch(operation.key, operation.expiry_s)
                              : items.get(operation.key);
  if (item == nullptr) return;
  operation.number = item->version;
  operation.head_bytes = item->head_bytes;
  operation.text = keep(*environment.cache, *item, item->text(), copy, operation);
}

Items::NewItem new_item_of(const Items& items, const Operation& operation) noexcept {
  return {.flags = operation.flags,
          .expires_ns = items.expires_ns(operation.expiry_s),
          .value_bytes = operation.value_bytes,
          .may_reuse = operation.work == Work::kStore && operation.terms.storing == Storing::kSet};
}

void store(const Environment& environment, Operation& operation, std::span<char> copy) noexcept {
  Items items(environment);
  const Items::Changed changed =
      operation.work == Work::kFinish
          ? items.store_received(*operation.item, operation.terms)
          : items.store_value(operation.key, operation.value, new_item_of(items, operation),
                              operation.terms);
  operation.outcome = changed.outcome;
  operation.item = nullptr;
  if (operation.request == nullptr) return;
  TextWriter reply(copy);
  meta_stored(*operation.request, changed, operation.value_bytes, reply);
  BP_DCHECK(!reply.is_full());
  operation.text = {copy.data(), reply.bytes()};
}

void meta(const Environment& environment, Operation& operation, std::span<char> copy) noexcept {
  TextWriter reply(copy);
  CacheItem* const item = operation.meta(environment, *operation.request, reply);
  BP_DCHECK(!reply.is_full());
  operation.text = {copy.data(), reply.bytes()};
  if (item == nullptr) return;
  operation.value = keep(*environment.cache, *item, {item->body(), item->body_bytes},
                         copy.subspan(reply.bytes()), operation);
}

}  // namespace

void execute(const Environment& environment, Operation& operation, std::span<char> copy) noexcept {
  BP_DCHECK(environment.is_own_thread());
  Items items(environment);
  switch (operation.work) {
    case Work::kGet: return get(environment, operation, copy);
    case Work::kStore:
    case Work::kFinish: return store(environment, operation, copy);
    case Work::kMake: {
      const Items::Changed made =
          items.make_for(operation.key, new_item_of(items, operation), operation.terms.storing);
      operation.outcome = made.outcome;
      operation.item = made.item;
      return;
    }
    case Work::kDrop: return environment.cache->release(*operation.item);
    case Work::kCount: {
      const Items::Counted counted =
          items.count(operation.key, {.is_incr = operation.is_incr, .delta = operation.number});
      operation.outcome = counted.changed.outcome;
      operation.number = counted.number;
      return;
    }
    case Work::kTouch: operation.outcome = items.touch(operation.key, operation.expiry_s); return;
    case Work::kDelete: operation.outcome = items.remove(operation.key); return;
    case Work::kFlush: return items.flush(operation.expiry_s);
    case Work::kMeta: return meta(environment, operation, copy);
    case Work::kSay: break;
  }
  BP_DCHECK(false);  // nothing to execute
}

}  // namespace bedplate::kvd
