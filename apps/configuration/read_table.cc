#include "apps/configuration/read_table.h"

#include <utility>

#include "apps/configuration/configuration_problems.h"
#include "apps/configuration/configuration_words.h"

namespace bedplate {

bool ReadTable::was_refused(std::string_view key) const {
  return problems_.was_refused(table_.path_of(key));
}

void ReadTable::refuse_at(TomlPosition position, std::string answer, std::string cure) {
  problems_.add(position, std::move(answer), std::move(cure));
}

void ReadTable::refuse(std::string answer, std::string cure) {
  refuse_at(node_.position, std::move(answer), std::move(cure));
}

void ReadTable::refuse_value(std::string_view key, std::string answer, std::string cure) {
  const TomlNode* value = find_child(node_, key);
  refuse_at((value != nullptr ? *value : node_).position, std::move(answer), std::move(cure));
}

void ReadTable::refuse_keys(std::initializer_list<const char*> keys, const std::string& answer,
                            const std::string& cure) {
  for (const char* key : keys) {
    if (const TomlNode* child = find_child(node_, key)) {
      refuse_at(child->key_position, quoted(key) + " " + answer, cure);
    }
  }
}

const TomlNode* tables_of(const ReadTable& read, std::string_view name, size_t count) {
  const TomlNode* const all = find_child(read.node(), name);
  return all != nullptr && all->children.size() == count ? all : nullptr;
}

}  // namespace bedplate
