#include "apps/configuration/read_table.h"

#include "apps/configuration/configuration_words.h"

namespace bedplate {

void ReadTable::refuse_keys(std::initializer_list<const char*> keys, const std::string& answer,
                            const std::string& cure) {
  for (const char* key : keys) {
    if (const TomlNode* child = find_child(node_, key)) {
      refuse_at(child->key_position, quoted(key) + " " + answer, cure);
    }
  }
}

}  // namespace bedplate
