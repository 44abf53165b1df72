#include "apps/configuration/configuration_values.h"

#include <algorithm>
#include <array>
#include <optional>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "alloc/confined_heap.h"
#include "apps/configuration/configuration_words.h"
#include "pinned_pool/owner_name.h"
#include "transport/sockets/ip_address.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;
using Type = ConfigurationKey::Type;
using Value = ConfigurationKey::Value;

constexpr uint64_t kMultipleBytes = 4 * kKiB;

std::string check_length(const std::string& text, uint64_t min, uint64_t max) {
  if (text.size() >= min && text.size() <= max) return "";
  return "is " + (text.empty() ? "empty" : std::to_string(text.size()) + " bytes long");
}

std::string read_text(const ConfigurationKey& key, const TomlNode& node, Value* value) {
  if (node.kind != TomlNode::Kind::kText) return std::string("is ") + to_text(node.kind);
  if (std::any_of(node.text.begin(), node.text.end(), is_control)) {
    return "contains a control character";
  }
  value->text = node.text;
  switch (key.type()) {
    case Type::kName: {
      constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-";
      if (node.text.find_first_not_of(kLetters) != std::string::npos) {
        return "is " + quoted(node.text);
      }
      return check_length(node.text, key.min(), key.max());
    }
    case Type::kPath:
      if (!node.text.empty() && !node.text.starts_with('/')) return "is " + quoted(node.text);
      return check_length(node.text, key.min(), key.max());
    case Type::kText: return check_length(node.text, key.min(), key.max());
    case Type::kOwners: return check_length(node.text, 1, sizeof(OwnerName::text) - 1);
    case Type::kGrants:
      if (node.text == "boot") return "is \"boot\", of which each process has its own";
      return check_length(node.text, 1, sizeof(OwnerName::text) - 1);
    case Type::kModules: return check_length(node.text, 1, kModuleNameMax);
    default: return "";
  }
}

std::string read_choice(const ConfigurationKey& key, const TomlNode& node, Value* value) {
  if (const std::string wrong = read_text(key, node, value); !wrong.empty()) return wrong;
  const std::span<const char* const> choices = key.words();
  for (const char* choice : choices) {
    // Sizes compare as sizes: "2MiB" is "2 MiB".
    const auto bytes = parse_bytes(choice);
    if (node.text == choice || (bytes && bytes == parse_bytes(node.text))) return "";
    ++value->number;
  }
  return "is " + quoted(node.text);
}

std::string check_multiple(const ConfigurationKey& key, uint64_t number) {
  const bool is_heap = key.rule() == Rule::kOwnHeap;
  if ((key.rule() == Rule::kMultipleOf4KiB || is_heap) && number % kMultipleBytes != 0) {
    return "is " + std::to_string(number) + " bytes, not a multiple of 4 KiB";
  }
  if (is_heap && number != 0 && number < kHeapBytesMin) {
    return "is " + std::to_string(number) + " bytes, less than a heap needs";
  }
  if (key.rule() == Rule::kPowerOfTwo && !is_power_of_two(number)) {
    return "is " + std::to_string(number) + ", not a power of two";
  }
  return "";
}

std::string read_integer(const ConfigurationKey& key, const TomlNode& node, Value* value) {
  if (node.kind != TomlNode::Kind::kInteger) return std::string("is ") + to_text(node.kind);
  value->number = static_cast<uint64_t>(node.number);
  const bool fits = node.number >= 0 && value->number >= key.min() && value->number <= key.max();
  return fits ? check_multiple(key, value->number) : "is " + std::to_string(node.number);
}

std::string read_size(const ConfigurationKey& key, const TomlNode& node, Value* value) {
  if (node.kind == TomlNode::Kind::kInteger) {
    if (const std::string wrong = read_integer(key, node, value); !wrong.empty()) return wrong;
  } else {
    if (const std::string wrong = read_text(key, node, value); !wrong.empty()) return wrong;
    const std::optional<uint64_t> bytes = parse_bytes(node.text);
    if (!bytes || *bytes < key.min() || *bytes > key.max()) return "is " + quoted(node.text);
    value->number = *bytes;
  }
  return check_multiple(key, value->number);
}

}  // namespace

std::string read_value(const ConfigurationKey& key, const TomlNode& node, Value* value) {
  if (!key.words().empty()) return read_choice(key, node, value);
  switch (key.type()) {
    case Type::kInteger: return read_integer(key, node, value);
    case Type::kSize: return read_size(key, node, value);
    case Type::kBoolean:
      value->number = static_cast<uint64_t>(node.number);
      if (node.kind == TomlNode::Kind::kBoolean) return "";
      return std::string("is ") + to_text(node.kind);
    case Type::kIpAddress:
    case Type::kIpAddresses:
    case Type::kIpPrefixes:
    case Type::kIpPrefix: {
      if (const std::string wrong = read_text(key, node, value); !wrong.empty()) return wrong;
      const bool is_address = key.type() == Type::kIpAddress || key.type() == Type::kIpAddresses;
      const bool is_good = is_address ? parse_ip_address(node.text).has_value()
                                      : parse_ip_prefix(node.text).has_value();
      return is_good ? "" : "is " + quoted(node.text);
    }
    case Type::kAddress: {
      if (const std::string wrong = read_text(key, node, value); !wrong.empty()) return wrong;
      auto address = parse_socket_address(node.text);
      if (!address.ok() || address.value().kind == SocketAddress::Kind::kActivation) {
        return "is " + quoted(node.text);
      }
      value->address = address.take();
      return "";
    }
    default: return read_text(key, node, value);
  }
}

bool addresses_clash(const SocketAddress& left, const SocketAddress& right) {
  using Kind = SocketAddress::Kind;
  if (left.kind != right.kind) return false;
  if (left.kind == Kind::kActivation) return true;
  if (left.kind == Kind::kUnix) return left.path == right.path;
  if (left.port != right.port) return false;
  const int family = left.kind == Kind::kTcp4 ? AF_INET : AF_INET6;
  const std::array<uint8_t, sizeof(in6_addr)> any{};  // 0.0.0.0 and :: are all zeros
  auto left_bytes = any, right_bytes = any;
  inet_pton(family, left.host.c_str(), left_bytes.data());
  inet_pton(family, right.host.c_str(), right_bytes.data());
  return left_bytes == right_bytes || left_bytes == any || right_bytes == any;
}

}  // namespace bedplate
