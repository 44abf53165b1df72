// The output of the server's side of a handshake: encodes the greeting and the replies to options,
// and keeps the bytes until they are sent. Negotiation decides which replies to send.
//
// The buffer is a fixed array. It is empty at the beginning of each answer, and the longest answer
// fits, except LIST: a long LIST continues once its earlier entries are sent.
//
// Invariants, by is_valid(): 1. The pending bytes lie within the array. 2. The array is reset once
// all is sent.
// Source: doc/proto.md of the NBD project, section "Option reply types".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/blockd/nbd_export.h"
#include "apps/blockd/nbd_wire.h"

namespace bedplate::nbd {

class HandshakeOutput {
 public:
  // The maximum length of an error reply's text.
  static constexpr size_t kErrorTextMaxBytes = 64;
  static constexpr size_t kCapacityBytes = 512;

  void clear() noexcept { begin_ = end_ = 0; }
  bool is_empty() const noexcept { return end_ == 0; }
  // The bytes to send next; valid until the next call that is not const.
  std::span<const std::byte> pending() const noexcept { return {bytes_ + begin_, end_ - begin_}; }
  // Removes the first `count` of the pending bytes. Requires: there are that many.
  void sent(size_t count) noexcept;

  // ---- Append replies. Requires: space; an empty array has space for any answer ----

  void greet() noexcept;
  // Says yes to an option, or ends its answer.
  void acknowledge(Option option) noexcept;
  // Requires: `text` has at most kErrorTextMaxBytes.
  void refuse(Option option, OptionReplyType error, std::string_view text) noexcept;
  // The whole answer to EXPORT_NAME, which has no reply header.
  void answer_export_name(const ExportInfo& info, bool structured_replies, bool zeroes) noexcept;
  // Parts of an answer to INFO or GO.
  void tell_export(Option option, const ExportInfo& info, bool structured_replies) noexcept;
  void tell_block_sizes(Option option) noexcept;
  void tell_name(Option option, const ExportInfo& info) noexcept;
  // Names base:allocation in an answer about contexts.
  void tell_context(Option option, uint32_t id) noexcept;
  // Append an entry of LIST, or its end. Return false, and append nothing, if there is no space.
  [[nodiscard]] bool try_list(const ExportInfo& info) noexcept;
  [[nodiscard]] bool try_end_list() noexcept;

  bool is_valid() const noexcept {
    return begin_ <= end_ && end_ <= kCapacityBytes && (begin_ < end_ || end_ == 0);
  }

 private:
  size_t room_bytes() const noexcept { return kCapacityBytes - end_; }
  void append(const void* data, size_t count) noexcept;
  void append_header(Option option, OptionReplyType type, size_t data_bytes) noexcept;

  size_t begin_ = 0;  // sent up to here, filled up to end_
  size_t end_ = 0;
  std::byte bytes_[kCapacityBytes] = {};
};

}  // namespace bedplate::nbd
