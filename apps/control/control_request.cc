//
// Compiled with exceptions (scripts/mk/flags.mk): the parser allocates, and memory may be
// exhausted.
#include "apps/control/control_request.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include <nlohmann/json.hpp>

#include "platform/assert.h"

namespace bedplate {
namespace {

using Request = ControlRequest;

// The SAX handler that nlohmann's parser calls for each token; false would end the parsing.
class Reader {
 public:
  explicit Reader(Request* request) noexcept : request_(*request) {}

  bool null() noexcept {
    if (depth_ == 1 && member_ == Member::kId) return take_id("null");
    return refuse_value();
  }
  bool boolean(bool value) noexcept {
    return is_parameter() ? add({.name = name_, .type = ControlType::kBoolean, .number = value})
                          : refuse_value();
  }
  bool number_integer(int64_t value) {
    if (depth_ == 1 && member_ == Member::kId) return take_id(std::to_string(value));
    return is_parameter() ? fault(ControlFault::kNoParameter, "a number must not be negative")
                          : refuse_value();
  }
  bool number_unsigned(uint64_t value) {
    if (depth_ == 1 && member_ == Member::kId) return take_id(std::to_string(value));
    return is_parameter() ? add({.name = name_, .type = ControlType::kNumber, .number = value})
                          : refuse_value();
  }
  // Also called for integers of more than 64 bits, which are valid as an id.
  bool number_float(double /*value*/, const std::string& text) noexcept {
    if (depth_ == 1 && member_ == Member::kId && is_whole(text)) return take_long_id(text);
    return is_parameter() ? fault(ControlFault::kNoParameter, "a number must be an integer")
                          : refuse_value();
  }
  bool string(const std::string& value) noexcept {
    if (is_parameter()) {
      return add({.name = name_, .type = ControlType::kText, .text = keep(value)});
    }
    if (depth_ != 1) return refuse_value();
    if (member_ == Member::kVersion && value == "2.0") return true;
    if (member_ == Member::kMethod) {
      request_.method = keep(value);
      return true;
    }
    return member_ == Member::kId ? take_text_id(value) : refuse_value();
  }
  bool binary(const nlohmann::ordered_json::binary_t& /*value*/) noexcept { return refuse_value(); }

  bool start_object(size_t /*count*/) noexcept {
    const bool is_expected = depth_ == 0 || (depth_ == 1 && member_ == Member::kParams);
    if (!is_expected) refuse_value();
    ++depth_;
    return true;
  }
  bool key(const std::string& key) noexcept {
    if (depth_ != 1) {
      name_ = keep(key);
      return true;
    }
    const Member member = key == "jsonrpc"  ? Member::kVersion
                          : key == "method" ? Member::kMethod
                          : key == "params" ? Member::kParams
                          : key == "id"     ? Member::kId
                                            : Member::kNone;
    const auto bit = 1U << static_cast<unsigned>(member);
    member_ = Member::kNone;  // the value of a rejected member is ignored
    if (member == Member::kNone) {
      request_.is_answer = request_.is_answer || key == "result" || key == "error";
      return fault(ControlFault::kNoRequest,
                   "a request has \"jsonrpc\", \"method\", \"params\" and \"id\" only");
    }
    if ((seen_ & bit) != 0) return fault(ControlFault::kNoRequest, "a member appears twice");
    seen_ |= bit;
    member_ = member;
    return true;
  }
  bool end_object() noexcept {
    BP_DCHECK(depth_ > 0);  // the parser matches brackets
    --depth_;
    return true;
  }
  bool start_array(size_t /*count*/) noexcept {
    if (depth_ == 0) {
      fault(ControlFault::kNoRequest, "send one request at a time");
    } else if (depth_ == 1 && member_ == Member::kParams) {
      fault(ControlFault::kNoParameter, "params must be given by name");
    } else {
      refuse_value();
    }
    ++depth_;
    return true;
  }
  bool end_array() noexcept { return end_object(); }
  bool parse_error(size_t /*at*/, const std::string& token,
                   const nlohmann::detail::exception& error) noexcept {
    constexpr int kOutOfRange = 406;  // the parser's error for a number beyond double; parsing ends
    const bool is_number = error.id == kOutOfRange;
    if (is_number && depth_ == 1 && member_ == Member::kId && is_whole(token)) {
      take_long_id(token);
      return false;
    }
    request_.fault = is_number ? ControlFault::kNoRequest : ControlFault::kNoJson;
    request_.complaint = is_number ? "a number is too large" : "this is not JSON";
    request_.id = "null";
    return false;
  }

  bool has_all() const noexcept {
    constexpr unsigned kNeeded = 1U << static_cast<unsigned>(Member::kVersion) |
                                 1U << static_cast<unsigned>(Member::kMethod);
    return (seen_ & kNeeded) == kNeeded;
  }
  // Keeps the first fault. The parser continues: the answer needs the request's id.
  bool fault(ControlFault fault, std::string_view complaint) noexcept {
    if (request_.fault != ControlFault::kNone) return true;
    request_.fault = fault;
    request_.complaint = complaint;
    return true;
  }

 private:
  enum class Member : uint8_t { kNone, kVersion, kMethod, kParams, kId };
  static constexpr std::string_view kPlainOnly = "a parameter must be a text, a number or a "
                                                 "boolean";
  static constexpr size_t kIdBytesMax = 64;
  static constexpr std::string_view kLongId = "an id has at most 64 bytes";

  bool is_parameter() const noexcept { return depth_ == 2 && member_ == Member::kParams; }
  // All texts of a line fit: each is at most as long here as in the line, except the id, which is
  // reformatted.
  std::string_view keep(std::string_view text) noexcept {
    BP_ASSERT(text.size() <= sizeof request_.texts - request_.used_bytes);
    char* at = request_.texts + request_.used_bytes;
    std::memcpy(at, text.data(), text.size());
    request_.used_bytes += text.size();
    return {at, text.size()};
  }
  static bool is_whole(std::string_view number) noexcept {
    return number.find_first_not_of("-0123456789") == number.npos;
  }
  bool take_long_id(std::string_view number) noexcept {
    if (number.size() <= kIdBytesMax) return take_id(number);
    return fault(ControlFault::kNoRequest, kLongId);
  }
  bool take_id(std::string_view json) noexcept {
    request_.has_id = true;
    request_.id = keep(json);
    return true;
  }
  bool take_text_id(std::string_view text) noexcept {
    char json[2 + 6 * kIdBytesMax];
    JsonText written(json);
    if (text.size() > kIdBytesMax) {
      return fault(ControlFault::kNoRequest, kLongId);
    }
    written.text(text);
    BP_ASSERT(!written.is_full());
    return take_id({json, written.bytes()});
  }
  bool add(const Request::Parameter& parameter) noexcept {
    for (size_t i = 0; i < request_.parameter_count; ++i) {
      if (request_.parameters[i].name == parameter.name) {
        return fault(ControlFault::kNoParameter, "a parameter appears twice");
      }
    }
    if (request_.parameter_count == kControlParametersMax) {
      return fault(ControlFault::kNoParameter, "there are more parameters than any method has");
    }
    request_.parameters[request_.parameter_count++] = parameter;
    return true;
  }
  bool refuse_value() noexcept {
    if (depth_ > 1) return fault(ControlFault::kNoParameter, kPlainOnly);
    return fault(ControlFault::kNoRequest,
                 "a request is an object: \"jsonrpc\" is \"2.0\", \"method\" a text, \"params\" an "
                 "object, \"id\" a text or a whole number");
  }

  Request& request_;
  int depth_ = 0;
  Member member_ = Member::kNone;
  unsigned seen_ = 0;  // members, by bits
  std::string_view name_;
};

}  // namespace

void read_control_request(std::string_view line, ControlRequest* request) noexcept {
  BP_ASSERT(line.size() <= ControlRequest::kBytesMax);
  request->fault = ControlFault::kNone;
  request->is_answer = request->has_id = false;
  request->id = "null";
  request->method = {};
  request->parameter_count = request->used_bytes = 0;
  Reader reader(request);
  try {
    if (nlohmann::ordered_json::sax_parse(line.begin(), line.end(), &reader) && !reader.has_all()) {
      reader.fault(ControlFault::kNoRequest, "a request must have \"jsonrpc\" and \"method\"");
    }
  } catch (const std::exception&) {
    request->has_id = true;  // unknown: it was not read so far
    reader.fault(ControlFault::kInternal,
                 "there is no heap memory left to read it: see the owners in `stats`");
  }
}

}  // namespace bedplate
