// Makes the FEC packets of a stream (SMPTE ST 2022-1): of each column of a matrix of its packets,
// and of each row where that is asked for.
//
// A sum grows in the buffer that is sent in the end. That of a row leaves at its end; those of
// columns leave one by one during the next matrix, so that no burst of losses takes both a column
// and its sum, and no burst of them goes out. A gap or a restart begins a new matrix: what of it
// was not whole is not protected.
//
// Invariants, which is_valid() looks at: 1. How far the matrix has come is less than its packets.
// 2. Each column, and the row, has summed up as many packets as it has had by then. 3. A sum has a
// buffer just where it has packets and is good for something; what waits is a whole column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/tsrelay/fec_wire_datapath.h"
#include "platform/assert.h"

namespace bedplate::relay {

class FecSenderSink {
 public:
  virtual ~FecSenderSink() = default;
  // Of buffer_bytes; nullptr: there is none now.
  virtual std::byte* take_buffer() noexcept = 0;
  virtual void give_buffer(std::byte* buffer) noexcept = 0;
  // It is the sink's from now on.
  virtual void send_fec(std::byte* buffer, uint32_t bytes, bool is_row) noexcept = 0;
};

struct FecMatrix {
  uint32_t columns = 0;  // L; 0: there is no FEC
  uint32_t rows = 0;     // D
  bool has_row_packets = false;
  uint32_t buffer_bytes = 0;
  FecSenderSink* sink = nullptr;
};

class FecSender {
 public:
  // Buffers that it may have at a time.
  static constexpr uint32_t buffer_count(uint32_t columns) noexcept { return 2 * columns + 1; }

  // Requires: called once; at most kFecColumnsMax columns, and rows where there are any.
  void create(const FecMatrix& matrix) noexcept {
    BP_ASSERT(matrix_.columns == 0 && matrix.columns <= kFecColumnsMax);
    BP_ASSERT(matrix.columns == 0 || (matrix.rows > 0 && matrix.sink != nullptr));
    matrix_ = matrix;
  }
  // The next packet of the stream: what follows the first kRtpHeaderBytes, and what those say.
  void add(std::span<const std::byte> body, const RtpPacket& rtp) noexcept;
  // What was begun is given back.
  void restart() noexcept;
  // Sets that have no FEC packet: there was no buffer, or a packet was too long.
  uint64_t unprotected_count() const noexcept { return unprotected_count_; }
  bool is_valid() const noexcept;

 private:
  struct Sum {
    std::byte* buffer = nullptr;
    uint32_t bytes = 0;  // behind the headers
    uint32_t count = 0;
    uint16_t base = 0;
    uint16_t length = 0;
    uint8_t type = 0;
    uint32_t timestamp = 0;
    uint8_t marker = 0;
    uint8_t flags = 0;
    bool is_bad = false;
  };

  void add_to(Sum& sum, std::span<const std::byte> body, const RtpPacket& rtp) noexcept;
  void give(Sum& sum) noexcept;
  void send(Sum& sum, bool is_row) noexcept;

  FecMatrix matrix_;
  uint32_t position_ = 0;  // in the matrix
  bool has_begun_ = false;
  uint16_t next_sequence_ = 0;
  uint32_t timestamp_ = 0;
  uint16_t column_sequence_ = 0;
  uint16_t row_sequence_ = 0;
  uint64_t unprotected_count_ = 0;
  Sum row_;
  Sum columns_[kFecColumnsMax];
  Sum waiting_[kFecColumnsMax];  // of the matrix before
};

}  // namespace bedplate::relay
