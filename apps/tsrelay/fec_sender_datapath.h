// Generates the FEC packets of a stream (SMPTE ST 2022-1): one for each column of a matrix of
// packets and, if configured, one for each row.
//
// Each XOR sum accumulates in the buffer that is sent. A row's sum leaves at the row's end. The
// columns' sums leave one by one during the next matrix, so that no burst of losses takes both a
// column and its sum, and so that the sums do not leave in a burst. A gap or a restart begins a new
// matrix: rows and columns whose sum has not left by then are not protected.
//
// Invariants, which is_valid() checks: 1. position_ is less than the packets of a matrix. 2. Each
// column, and the row, has summed up all its packets so far. 3. A sum without packets has no
// buffer; a sum with packets has one, or is bad. A sum in waiting_ is a whole column.
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
  // Returns a buffer of buffer_bytes, or nullptr if none is free.
  virtual std::byte* take_buffer() noexcept = 0;
  virtual void give_buffer(std::byte* buffer) noexcept = 0;
  // Sends an FEC packet. The sink takes over the buffer.
  virtual void send_fec(std::byte* buffer, uint32_t bytes, bool is_row) noexcept = 0;
};

struct FecMatrix {
  uint32_t columns = 0;  // L; 0: there is no FEC
  uint32_t rows = 0;     // D
  bool has_row_packets = false;
  uint32_t buffer_bytes = 0;  // the size of the sink's buffers
  FecSenderSink* sink = nullptr;
};

class FecSender {
 public:
  // The most buffers that it holds at once. Buffers that it has sent are the sink's.
  static constexpr uint32_t buffer_count(uint32_t columns) noexcept { return 2 * columns + 1; }

  // Requires: called once; at most kFecColumnsMax columns; with columns, at least one row, and a
  // sink that outlives this.
  void create(const FecMatrix& matrix) noexcept {
    BP_ASSERT(matrix_.columns == 0 && matrix.columns <= kFecColumnsMax);
    BP_ASSERT(matrix.columns == 0 || (matrix.rows > 0 && matrix.sink != nullptr));
    matrix_ = matrix;
  }
  // Adds the next packet of the stream. `rtp`: its first kRtpHeaderBytes; `body`: the bytes after
  // these.
  void add(std::span<const std::byte> body, const RtpPacket& rtp) noexcept;
  // Gives the buffers of all sums back to the sink, and begins a new matrix. Does not count
  // these sums as unprotected.
  void restart() noexcept;
  // The number of rows and columns without an FEC packet: no buffer was free, a packet was too
  // long, or a gap came before the FEC packet was sent.
  uint64_t unprotected_count() const noexcept { return unprotected_count_; }
  bool is_valid() const noexcept;

 private:
  struct Sum {
    std::byte* buffer = nullptr;
    uint32_t bytes = 0;  // after the headers
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
  uint64_t begun_count() const noexcept;
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
  Sum waiting_[kFecColumnsMax];  // the columns of the last matrix
};

}  // namespace bedplate::relay
