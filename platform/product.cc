#include "platform/product.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr size_t kNameBytesMax = 31;

constinit Product this_product;

}  // namespace

const Product& product() noexcept { return this_product; }

void set_product(const Product& product) noexcept {
  BP_ASSERT(is_product_name(product.name));
  this_product = product;
}

bool is_product_name(std::string_view name) noexcept {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_good = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= kNameBytesMax && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(), is_good);
}

std::string usual_runtime_directory() { return std::string("/run/") + product().name; }

std::string with_product_name(std::string_view text) {
  constexpr std::string_view kWord = "PROGRAM";
  std::string all;
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord)) {
    all.append(text.substr(0, at)).append(product().name);
    text.remove_prefix(at + kWord.size());
  }
  return all.append(text);
}

}  // namespace bedplate
