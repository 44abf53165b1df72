// One table of a configuration: its keys, the type and range of each, and the variable that gets
// its value.
//
// A function `describe(ConfigurationTable&, Settings&)` beside the settings describes their table:
//
//     void describe(ConfigurationTable& table, CacheSettings& settings) {
//       table.addresses("listen", &settings.listen, 1, 8).unique().required()
//           .help("Where it listens.");
//       table.size("bytes", &settings.bytes, 4 * kKiB, 64 * kGiB).help("How much it keeps.");
//       table.tables("tenant", &settings.tenants, 0, 16);  // [[cache.tenant]], described likewise
//     }
//
// The description is the only source for a key: the reader of a file (configuration_reader.h), its
// messages, `bedplate keys` and the table in docs/configuration.md are made from it. The default of
// a key is the value of its variable when the key is described. Only the order of calls matters;
// describing reads nothing and starts nothing. Each overload describes a key of one type. Texts are
// copied, except the words of choices, which outlive the table. One report lists all violations of
// the description in a file, with line and column. Threads: any, before the seal (it allocates).
#pragma once

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/configuration/toml_reader.h"
#include "pinned_pool/plan.h"
#include "platform/units.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

class ReadTable;

// A word of the file and the value that it stands for.
template <typename T>
struct Choice {
  const char* word;
  T value;
};

// Deduced from the variable alone, so that a plain array can be passed.
template <typename T>
using Choices = std::type_identity_t<std::span<const Choice<T>>>;

// The word of `value`, quoted as in a file; "" if the value has no word.
template <typename T>
std::string word_of(Choices<T> choices, const T& value) {
  for (const Choice<T>& each : choices) {
    if (each.value == value) return "\"" + std::string(each.word) + "\"";
  }
  return "";
}
template <typename T>
std::vector<const char*> words_of(Choices<T> choices) {
  std::vector<const char*> words;
  for (const Choice<T>& each : choices) words.push_back(each.word);
  return words;
}

// Page sizes of a segment that is planned with them.
inline constexpr Choice<PageWish> kPageChoices[] = {{"4 KiB", PageWish::k4KiB},
                                                    {"2 MiB", PageWish::k2MiB},
                                                    {"1 GiB", PageWish::k1GiB},
                                                    {"largest", PageWish::kLargest}};
// The upper limit of every size: half of the x86-64 address space. Sums fit 64 bits.
inline constexpr uint64_t kSizeMaxBytes = 64 * kTiB;

// MODULE_NAME_LEN and IFNAMSIZ of the kernel, without their NUL.
inline constexpr uint64_t kModuleNameMax = 55;
inline constexpr uint64_t kInterfaceNameMax = 15;

class ConfigurationKey {
 public:
  // kGrants: owners except boot, since each process has its own. kAddress: one socket's address, to
  // dial. kChoices and the types after it: lists.
  enum class Type {
    kName,
    kText,
    kPath,
    kInteger,
    kSize,
    kBoolean,
    kChoice,
    kAddress,
    kShard,
    kGroup,
    kIpAddress,
    kIpPrefix,
    kChoices,
    kAddresses,
    kOwners,
    kGrants,
    kModules,
    kShards,
    kIpAddresses,
    kIpPrefixes,
    kShardsOrAll
  };
  // kMultipleOfPages: of the pool's pages; checked after all is read. kRoundedToPowerOfTwo: any
  // value; its reader rounds it up to a power of two. kOwnHeap: the heap of a process that joins; a
  // multiple of 4 KiB, 0 (no heap) or enough for a heap.
  enum class Rule {
    kNone,
    kMultipleOf4KiB,
    kMultipleOfPages,
    kPowerOfTwo,
    kRoundedToPowerOfTwo,
    kOwnHeap
  };

  // A value of the file that has the key's type and is in its range.
  struct Value {
    TomlPosition position;
    std::string text;
    uint64_t number = 0;  // bytes of a kSize, index of a choice, 0 or 1 of a kBoolean
    SocketAddress address;
  };

  // Functions that access the variable of a key.
  struct Variable {
    std::function<void(Value&)> store;  // of lists: for each element
    std::function<void()> clear = {};   // of lists: called before the first element of the file
    std::function<std::optional<uint64_t>()> load = {};  // of numbers, like `set`
    std::function<void(std::optional<uint64_t>)> set = {};
  };

  ConfigurationKey(const char* name, Type type, uint64_t min, uint64_t max,
                   std::string default_text, Variable variable, std::vector<const char*> words)
      : name_(name),
        type_(type),
        min_(min),
        max_(max),
        default_text_(std::move(default_text)),
        words_(std::move(words)),
        variable_(std::move(variable)) {}

  // ---- Properties beyond the type, set by the table's description ----

  ConfigurationKey& required() {
    is_required_ = true;
    return *this;
  }
  // The documentation shows `words` as the default, instead of the variable's value.
  ConfigurationKey& otherwise(std::string words) {
    default_text_ = std::move(words);
    return *this;
  }
  // In [[tables]]: no two tables have the same value. In a list: no two elements are the same.
  ConfigurationKey& unique() {
    is_unique_ = true;
    return *this;
  }
  ConfigurationKey& rule(Rule rule) {
    rule_ = rule;
    return *this;
  }
  // One or more sentences for people, in Markdown.
  ConfigurationKey& help(std::string sentences) {
    help_ = std::move(sentences);
    return *this;
  }

  // ---- For readers of the description ----

  // Whether its value is a number: an integer or a size.
  bool is_number() const noexcept { return type_ == Type::kInteger || type_ == Type::kSize; }
  // The present value of its variable; nothing: no value. Both functions require is_number().
  std::optional<uint64_t> number() const { return variable_.load(); }
  void set_number(std::optional<uint64_t> number) const { variable_.set(number); }
  // Moves a value of the file into the variable; adds it as an element if the key is a list. The
  // name of a shard or a group becomes a reference of the table, which is looked up later.
  void store(Value& value) const { variable_.store(value); }
  // Empties the variable of a list, which holds the default until then. Requires: is_list().
  void clear() const { variable_.clear(); }

  const std::string& name() const noexcept { return name_; }
  Type type() const noexcept { return type_; }
  // The range of a number, of the bytes of a name, text or path, or of the elements of a list.
  uint64_t min() const noexcept { return min_; }
  uint64_t max() const noexcept { return max_; }
  Rule rule() const noexcept { return rule_; }
  bool is_required() const noexcept { return is_required_; }
  bool is_unique() const noexcept { return is_unique_; }
  bool is_list() const noexcept { return type_ >= Type::kChoices; }
  // The allowed words of a value, or of each element of a list; empty: any text is allowed.
  std::span<const char* const> words() const noexcept { return words_; }
  const std::string& help_text() const noexcept { return help_; }
  // As in docs/configuration.md: "required", the text in a file, or words.
  std::string default_text() const { return is_required_ ? "required" : default_text_; }
  // "integer", "list of addresses".
  const char* type_text() const noexcept;
  // "0..1023, unique".
  std::string range_text() const;
  // "integer: 0..1023, unique".
  std::string expectation() const;

 private:
  std::string name_;
  Type type_;
  uint64_t min_;
  uint64_t max_;
  Rule rule_ = Rule::kNone;
  bool is_required_ = false;
  bool is_unique_ = false;
  std::string default_text_;
  std::string help_;
  std::vector<const char*> words_;
  Variable variable_;
};

class ConfigurationTable {
 public:
  using Key = ConfigurationKey;
  using Type = ConfigurationKey::Type;

  // `name`: with the tables around it, "cache.tenant"; "": the whole file. `is_sample`: only the
  // description is used; nothing is read.
  explicit ConfigurationTable(std::string name, bool is_sample = false)
      : name_(std::move(name)), is_sample_(is_sample) {}

  // ---- Keys. The variable `*to` outlives this; its value is the default ----

  template <std::integral T>
  Key& integer(const char* name, T* to, uint64_t min, uint64_t max) {
    return add_number(name, Type::kInteger, to, min, max, std::to_string(*to));
  }
  // otherwise() tells the default.
  template <std::integral T>
  Key& integer(const char* name, std::optional<T>* to, uint64_t min, uint64_t max) {
    const auto load = [to] {
      return to->has_value() ? std::optional<uint64_t>(**to) : std::nullopt;
    };
    const auto set = [to](std::optional<uint64_t> number) {
      to->reset();
      if (number) *to = static_cast<T>(*number);
    };
    return add(name, Type::kInteger, min, max, "",
               {.store = [to](Key::Value& value) { *to = static_cast<T>(value.number); },
                .load = load,
                .set = set});
  }
  // Bytes: "64 MiB", or an integer.
  template <std::unsigned_integral T>
  Key& size(const char* name, T* to, uint64_t min, uint64_t max) {
    const std::string usual =
        *to == 0 ? "0" : "\"" + std::string(format_bytes(*to).text) + "\"";  // as in a file
    return add_number(name, Type::kSize, to, min, max, usual);
  }
  template <std::integral T>
  Key& boolean(const char* name, T* to) {
    return add(name, Type::kBoolean, 0, 0, *to != 0 ? "true" : "false",
               {.store = [to](Key::Value& value) { *to = value.number != 0; }});
  }
  // A text of `min` to `max` bytes, without control characters.
  Key& text(const char* name, std::string* to, uint64_t min, uint64_t max) {
    return add_text(name, Type::kText, to, min, max);
  }
  // A name of a-z, 0-9 and -.
  Key& name(const char* name, std::string* to, uint64_t min, uint64_t max) {
    return add_text(name, Type::kName, to, min, max);
  }
  // A path that begins with /.
  Key& path(const char* name, std::string* to, uint64_t min, uint64_t max) {
    return add_text(name, Type::kPath, to, min, max);
  }
  Key& ip_address(const char* name, std::string* to) {
    return add_text(name, Type::kIpAddress, to, 0, 0);
  }
  Key& ip_prefix(const char* name, std::string* to) {
    return add_text(name, Type::kIpPrefix, to, 0, 0);
  }
  // One socket's address, to dial.
  Key& address(const char* name, std::optional<SocketAddress>* to) {
    return add(name, Type::kAddress, 0, 0, "",
               {.store = [to](Key::Value& value) { *to = std::move(value.address); }});
  }
  // Addresses to listen at; no two of them may clash in the kernel.
  Key& addresses(const char* name, std::vector<SocketAddress>* to, uint64_t min, uint64_t max) {
    return add(name, Type::kAddresses, min, max, "[]",
               {.store = [to](Key::Value& value) { to->push_back(std::move(value.address)); },
                .clear = [to] { to->clear(); }});
  }
  // The name of a shard, stored as its index among [[shard]]. Requires: the variable is 0, so that
  // the default is the first shard.
  Key& shard(const char* name, uint32_t* to) {
    return add(name, Type::kShard, 0, 0, "the first shard",
               {.store = [this, to](Key::Value& value) {
                 references_.shards.push_back({to, std::move(value)});
               }});
  }
  Key& shard(const char* name, std::optional<uint32_t>* to) {
    const auto store = [this, to](Key::Value& value) {
      references_.shards.push_back({&to->emplace(0), std::move(value)});
    };
    return add(name, Type::kShard, 0, 0, "", {.store = store});
  }
  // A list of shards, each at most once.
  Key& shards(const char* name, std::vector<uint32_t>* to, uint64_t max) {
    const auto store = [this, to, max](Key::Value& value) {
      to->reserve(max);  // so that elements do not move
      references_.shards.push_back({&to->emplace_back(), std::move(value)});
    };
    return add(name, Type::kShards, 1, max, "", {.store = store, .clear = [to] { to->clear(); }})
        .unique();
  }
  // The shards that a service is placed on: a list of them, each at most once, or the text "all",
  // which is the default. The list has all shards once the whole file is read.
  Key& shards_or_all(const char* name, std::vector<uint32_t>* to);
  // The name of a group, stored as its index. Requires: the variable is 0, so that the default is
  // the first group.
  Key& group(const char* name, uint32_t* to) {
    return add(name, Type::kGroup, 0, 0, "the first group",
               {.store = [this, to](Key::Value& value) {
                 references_.groups.push_back({to, std::move(value)});
               }});
  }
  // One of the words of `choices`, which outlives this.
  template <typename T>
  Key& choice(const char* name, T* to, Choices<T> choices) {
    return add(name, Type::kChoice, 0, 0, word_of(choices, *to),
               {.store = [to, choices](Key::Value& v) { *to = choices[v.number].value; }},
               words_of<T>(choices));
  }
  template <typename T>
  Key& choice(const char* name, std::optional<T>* to, Choices<T> choices) {
    return add(name, Type::kChoice, 0, 0, "",
               {.store = [to, choices](Key::Value& v) { *to = choices[v.number].value; }},
               words_of<T>(choices));
  }
  // A list of the words, each at most once.
  template <typename T>
  Key& choices(const char* name, std::vector<T>* to, Choices<T> choices, uint64_t min) {
    std::string all;
    for (const T& value : *to) all += (all.empty() ? "" : ",") + word_of(choices, value);
    return add(name, Type::kChoices, min, choices.size(), "[" + all + "]",
               {.store = [to, choices](Key::Value& v) { to->push_back(choices[v.number].value); },
                .clear = [to] { to->clear(); }},
               words_of<T>(choices))
        .unique();
  }
  // The same, with a bool variable for each word.
  Key& flags(const char* name, const std::vector<Choice<bool*>>& flags, uint64_t min) {
    const auto clear = [flags] {
      for (const Choice<bool*>& flag : flags) *flag.value = false;
    };
    return add(name, Type::kChoices, min, flags.size(), "[]",
               {.store = [flags](Key::Value& value) { *flags[value.number].value = true; },
                .clear = clear},
               words_of<bool*>(flags))
        .unique();
  }
  // A list of texts of `type`: kOwners, kGrants, kModules, kIpAddresses or kIpPrefixes.
  Key& texts(const char* name, Type type, std::vector<std::string>* to, uint64_t max) {
    return add(name, type, 0, max, "[]",
               {.store = [to](Key::Value& value) { to->push_back(std::move(value.text)); },
                .clear = [to] { to->clear(); }})
        .unique();
  }

  // ---- Tables within this one; their settings have a function describe() ----

  // A service's table: [name], at most once, if `max` is 0; else [[name]], at most `max` times.
  // `describe` is called for each table in the file, and for a sample.
  void service(const char* name, uint64_t max, std::function<void(ConfigurationTable&)> describe) {
    add_table(name, false, max, std::move(describe));
  }
  // [name], at most once. `is_there`, if not nullptr, becomes true if the file has the table.
  template <typename Settings>
  void table(const char* name, Settings* settings, bool is_required = false,
             bool* is_there = nullptr) {
    add_table(name, is_required, 0, [settings, is_there](ConfigurationTable& one) {
      if (is_there != nullptr && !one.is_sample_) *is_there = true;
      describe(one, *settings);
    });
  }
  // [[name]], at most `max` times, and at least once unless `min` is 0. Elements do not move while
  // the file is read.
  template <typename Settings>
  void tables(const char* name, std::vector<Settings>* all, uint64_t min, uint64_t max) {
    // The variables of a sample live as long as the description.
    auto sample = std::make_shared<Settings>();
    add_table(name, min != 0, max, [all, max, sample](ConfigurationTable& one) {
      if (!one.is_sample_) all->reserve(max);
      describe(one, one.is_sample_ ? *sample : all->emplace_back());
    });
  }

  // `check` is called after the table is read; it checks the rules between its keys. There may be
  // several, which are called in this order.
  void check(std::function<void(ReadTable&)> check) { checks_.push_back(std::move(check)); }

  // ---- For readers of the description ----

  struct Child {
    std::string name;  // with the tables around it
    bool is_required;
    uint64_t max_count;                                 // of [[table]]; 0: one [table]
    std::function<void(ConfigurationTable&)> describe;  // for each table in the file, and samples

    std::string_view own_name() const noexcept {
      return std::string_view(name).substr(name.rfind('.') + 1);
    }
    // "[pool]" or "[[shard]]".
    std::string label() const { return max_count == 0 ? "[" + name + "]" : "[[" + name + "]]"; }
  };
  // The name of a shard or a group, which is looked up after the whole file is read.
  struct Reference {
    uint32_t* index;
    Key::Value value;
  };
  // Those in the values of its keys, in the order in which they were stored.
  struct References {
    std::vector<Reference> shards = {};
    std::vector<Reference> groups = {};
    std::vector<std::vector<uint32_t>*> shard_lists = {};  // all shards, if they stay empty
  };

  const std::string& name() const noexcept { return name_; }
  // `key` with its table: "cache.bytes".
  std::string path_of(std::string_view key) const {
    return name_.empty() ? std::string(key) : name_ + "." + std::string(key);
  }
  bool is_sample() const noexcept { return is_sample_; }
  // In the order of their description.
  const std::deque<Key>& keys() const noexcept { return keys_; }
  const std::deque<Child>& children() const noexcept { return children_; }
  // nullptr: no such key.
  Key* find_key(std::string_view name) noexcept;
  const Key* find_key(std::string_view name) const noexcept;
  const Child* find_child(std::string_view name) const noexcept;
  const References& references() const noexcept { return references_; }
  void run_checks(ReadTable& read) const {
    for (const auto& check : checks_) check(read);
  }

 private:
  Key& add(const char* name, Type type, uint64_t min, uint64_t max, std::string default_text,
           Key::Variable variable, std::vector<const char*> words = {});
  template <typename T>
  Key& add_number(const char* name, Type type, T* to, uint64_t min, uint64_t max,
                  std::string default_text) {
    const auto load = [to] { return std::optional<uint64_t>(static_cast<uint64_t>(*to)); };
    const auto set = [to](std::optional<uint64_t> number) { *to = static_cast<T>(number.value()); };
    return add(name, type, min, max, std::move(default_text),
               {.store = [to](Key::Value& value) { *to = static_cast<T>(value.number); },
                .load = load,
                .set = set});
  }
  Key& add_text(const char* name, Type type, std::string* to, uint64_t min, uint64_t max);
  void add_table(const char* name, bool is_required, uint64_t max_count,
                 std::function<void(ConfigurationTable&)> describe);

  std::string name_;
  bool is_sample_;
  std::deque<Key> keys_;  // a deque: references stay valid
  std::deque<Child> children_;
  std::vector<std::function<void(ReadTable&)>> checks_;
  References references_;
};

// A name that two keys or tables of `table` have, which is a defect of its description; empty: each
// has its own.
std::string find_doubled_name(const ConfigurationTable& table);

}  // namespace bedplate
