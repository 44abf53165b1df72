// The table of a service in C: its part of bedplate_service.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/c_interface/service_c.h"
#include "apps/configuration/read_table.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"

using namespace bedplate;

struct bp_read_table {
  ReadTable& table;
};

namespace {

using TableKey = ConfigurationKey;

// A text of the table that a C variable points to. Its default is what the variable had at first:
// later it may point to the text of an earlier file.
std::shared_ptr<std::string> keep_text(bp_table* table, const char** value) {
  const char* const present = *value == nullptr ? "" : *value;
  auto text = std::make_shared<std::string>(
      table->service.default_texts.try_emplace(value, present).first->second);
  table->keep([text, value](ServicePlan*) { *value = text->c_str(); });
  return text;
}

// A list of shards of the table that C variables get. It lives as long as the service.
std::vector<uint32_t>* keep_shards(bp_table* table, unsigned* shards, size_t* count) {
  auto all = std::make_shared<std::vector<uint32_t>>();
  table->keep([all, shards, count](ServicePlan*) {
    std::copy(all->begin(), all->end(), shards);
    *count = all->size();
  });
  return all.get();
}

// Words of a choice, and their values.
template <typename T>
struct Words {
  std::vector<std::string> texts;
  std::vector<Choice<T>> choices;

  Words(const char* const* words, size_t count) : texts(words, words + count) {}
};

TableKey& find_key(bp_table* table, const char* key) {
  TableKey* found = table->table.find_key(key);
  BP_REQUIRE(found != nullptr, "the key %s is not described yet: bp_table_required and its like",
             key);
  return *found;
}

}  // namespace

extern "C" {

void bp_table_integer(bp_table* table, const char* key, uint64_t* value, uint64_t min, uint64_t max,
                      const char* help) {
  table->table.integer(key, value, min, max).help(help);
}
void bp_table_size(bp_table* table, const char* key, uint64_t* value, uint64_t min, uint64_t max,
                   const char* help) {
  table->table.size(key, value, min, max).help(help);
}
void bp_table_boolean(bp_table* table, const char* key, int* value, const char* help) {
  table->table.boolean(key, value).help(help);
}

void bp_table_text(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help) {
  table->table.text(key, keep_text(table, value).get(), 0, bytes_max).help(help);
}
void bp_table_name(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help) {
  table->table.name(key, keep_text(table, value).get(), 1, bytes_max).help(help);
}
void bp_table_path(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help) {
  table->table.path(key, keep_text(table, value).get(), 1, bytes_max).help(help);
}
void bp_table_ip_address(bp_table* table, const char* key, const char** value, const char* help) {
  table->table.ip_address(key, keep_text(table, value).get()).help(help);
}
void bp_table_ip_prefix(bp_table* table, const char* key, const char** value, const char* help) {
  table->table.ip_prefix(key, keep_text(table, value).get()).help(help);
}

void bp_table_address(bp_table* table, const char* key, const char** value, const char* help) {
  struct Dialled {
    std::optional<SocketAddress> address;
    std::string text;
  };
  auto dialled = std::make_shared<Dialled>();
  table->keep([dialled, value](ServicePlan*) {
    if (dialled->address) dialled->text = dialled->address->text();
    *value = dialled->address ? dialled->text.c_str() : nullptr;
  });
  table->table.address(key, &dialled->address).help(help);
}

void bp_table_choice(bp_table* table, const char* key, unsigned* value, const char* const* words,
                     size_t word_count, const char* help) {
  auto all = std::make_shared<Words<unsigned>>(words, word_count);
  for (size_t i = 0; i < word_count; ++i) {
    all->choices.push_back({all->texts[i].c_str(), static_cast<unsigned>(i)});
  }
  table->keep([all](ServicePlan*) {});
  table->table.choice<unsigned>(key, value, all->choices).help(help);
}

void bp_table_flags(bp_table* table, const char* key, uint64_t* bits, const char* const* words,
                    size_t word_count, const char* help) {
  BP_ASSERT(word_count <= 64);
  struct Flags : Words<bool*> {
    using Words::Words;
    bool are_set[64] = {};
  };
  auto all = std::make_shared<Flags>(words, word_count);
  for (size_t i = 0; i < word_count; ++i) {
    all->are_set[i] = (*bits >> i & 1) != 0;
    all->choices.push_back({all->texts[i].c_str(), &all->are_set[i]});
  }
  table->keep([all, bits](ServicePlan*) {
    *bits = 0;
    for (size_t i = 0; i < all->choices.size(); ++i) *bits |= uint64_t{all->are_set[i]} << i;
  });
  table->table.flags(key, all->choices, 0).help(help);
}

void bp_table_texts(bp_table* table, const char* key, int kind, const char* const** values,
                    size_t* count, size_t count_max, const char* help) {
  constexpr TableKey::Type kTypes[] = {TableKey::Type::kOwners, TableKey::Type::kModules,
                                       TableKey::Type::kIpAddresses, TableKey::Type::kIpPrefixes};
  static_assert(BP_OWNERS == 0 && BP_MODULES == 1 && BP_IP_ADDRESSES == 2 && BP_IP_PREFIXES == 3);
  BP_ASSERT(kind >= BP_OWNERS && kind <= BP_IP_PREFIXES);
  struct Texts {
    std::vector<std::string> texts;
    std::vector<const char*> pointers;
  };
  auto all = std::make_shared<Texts>();
  table->keep([all, values, count](ServicePlan*) {
    all->pointers.clear();
    for (const std::string& text : all->texts) all->pointers.push_back(text.c_str());
    *values = all->pointers.data();
    *count = all->pointers.size();
  });
  table->table.texts(key, kTypes[kind], &all->texts, count_max).help(help);
}

void bp_table_shard(bp_table* table, const char* key, unsigned* value, const char* help) {
  table->table.shard(key, value).help(help);
}
void bp_table_shards(bp_table* table, const char* key, unsigned* shards, size_t* count,
                     size_t count_max, const char* help) {
  table->table.shards(key, keep_shards(table, shards, count), count_max).help(help);
}
void bp_table_shards_or_all(bp_table* table, const char* key, unsigned* shards, size_t* count,
                            const char* help) {
  table->table.shards_or_all(key, keep_shards(table, shards, count)).help(help);
}

void bp_table_listen(bp_table* table, const char* key, const char* help) {
  auto addresses = std::make_shared<std::vector<SocketAddress>>();
  table->keep([addresses, name = std::string(key), &service = table->service](ServicePlan* plan) {
    if (plan != nullptr) service.listens.push_back({name, *addresses});
  });
  table->table.addresses(key, addresses.get(), 1, 8).required().unique().help(help);
}

void bp_table_required(bp_table* table, const char* key) { find_key(table, key).required(); }
void bp_table_unique(bp_table* table, const char* key) { find_key(table, key).unique(); }
void bp_table_otherwise(bp_table* table, const char* key, const char* words) {
  find_key(table, key).otherwise(words);
}
void bp_table_rule(bp_table* table, const char* key, int rule) {
  constexpr TableKey::Rule kRules[] = {
      TableKey::Rule::kMultipleOf4KiB, TableKey::Rule::kMultipleOfPages,
      TableKey::Rule::kPowerOfTwo, TableKey::Rule::kRoundedToPowerOfTwo};
  static_assert(BP_MULTIPLE_OF_4KIB == 0 && BP_ROUNDED_TO_POWER_OF_TWO == 3);
  BP_ASSERT(rule >= BP_MULTIPLE_OF_4KIB && rule <= BP_ROUNDED_TO_POWER_OF_TWO);
  find_key(table, key).rule(kRules[rule]);
}

void bp_table_table(bp_table* table, const char* name, int* is_there,
                    void (*describe)(void* self, bp_table* table), void* self) {
  CService& service = table->service;
  table->table.service(name, 0, [=, &service](ConfigurationTable& inner) {
    if (is_there != nullptr && !inner.is_sample()) *is_there = 1;
    bp_table described{inner, service};
    describe(self, &described);
  });
}
void bp_table_tables(bp_table* table, const char* name, unsigned count_max, unsigned* count,
                     void (*describe)(void* self, unsigned index, bp_table* table), void* self) {
  CService& service = table->service;
  if (!table->table.is_sample()) *count = 0;
  table->table.service(name, count_max, [=, &service](ConfigurationTable& inner) {
    bp_table described{inner, service};
    describe(self, inner.is_sample() ? 0 : (*count)++, &described);
  });
}

void bp_table_check(bp_table* table, void (*check)(void* self, bp_read_table* read)) {
  table->table.check([&service = table->service, check](ReadTable& read) {
    service.hand_over_values();
    bp_read_table seen{read};
    check(service.self(), &seen);
  });
}

int bp_read_has(const bp_read_table* read, const char* key) { return read->table.has(key); }
int bp_read_was_refused(const bp_read_table* read, const char* key) {
  return read->table.was_refused(key);
}
void bp_read_refuse(bp_read_table* read, const char* key, const char* answer, const char* cure) {
  if (key == nullptr) return read->table.refuse(answer, cure);
  read->table.refuse_value(key, answer, cure);
}

}  // extern "C"
