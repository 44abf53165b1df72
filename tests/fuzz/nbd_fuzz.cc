// Fuzz target of the NBD protocol: any bytes, compared with the slow reference of the tests.
//
// The first byte chooses the kind of the rest:
//     even: a handshake. Byte 1: the exports (modulo 4); bytes 2 and 3: the seed of the cuts; then
//           the client's bytes. All cuts must give the same result.
//     odd:  requests. Byte 1: bit 0 read-only, bit 1 structured replies, bit 2 block status; bytes
//           2 to 9: the volume's bytes; then request headers of 28 bytes, each checked by itself.
// `make fuzz-run` builds and runs this.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/blockd/nbd_negotiation.h"
#include "apps/blockd/nbd_request_datapath.h"
#include "tests/apps/blockd/nbd_reference.h"

namespace bedplate::nbd {
namespace {

void require(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "nbd_fuzz: broken promise: %s\n", what);
  std::abort();
}

// No export; one; two, of which one name begins the other; or the most, with the longest names.
std::span<const ExportInfo> exports_of(uint8_t choice) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (int i = 0; i < 64; ++i) result.push_back(std::to_string(i) + std::string(253, 'n'));
    return result;
  }();
  static const std::vector<ExportInfo> many = [] {
    std::vector<ExportInfo> result;
    for (const std::string& name : names) {
      result.push_back({.name = name, .bytes = UINT64_MAX, .read_only = true});
    }
    return result;
  }();
  static constexpr ExportInfo kFew[] = {{.name = "ram0", .bytes = 64 << 20, .read_only = false},
                                        {.name = "ram", .bytes = 4096, .read_only = true}};
  switch (choice % 4) {
    case 0: return kFew;
    case 1: return std::span(kFew).first<1>();
    case 2: return many;
    default: return {};
  }
}

void fuzz_handshake(std::string_view input) {
  const auto exports = exports_of(static_cast<uint8_t>(input[1]));
  const auto seed = static_cast<uint32_t>(nbd_reference::number_at(input, 2, 2));
  input.remove_prefix(4);
  const nbd_reference::Outcome expected = nbd_reference::expected(exports, input);
  std::string first_output;
  Negotiation negotiation(exports);
  for (const nbd_reference::Feeding feeding : nbd_reference::kFeedings) {
    negotiation.reset();
    nbd_reference::Outcome outcome =
        nbd_reference::Driver(negotiation, input, feeding, seed + 1).converse();
    require(outcome.broken == nullptr, outcome.broken);
    if (first_output.empty()) first_output = outcome.output;
    require(outcome.output == first_output, "pieces change nothing");
    outcome.output = nbd_reference::without_error_texts(outcome.output);
    require(outcome == expected, "the reference agrees");
  }
}

void fuzz_reply_headers(const Request& request, const Verdict& verdict) {
  using nbd_reference::be;
  std::byte bytes[kMaxReplyHeaderBytes];
  const auto text_of = [&bytes](size_t count) {
    return std::string(reinterpret_cast<const char*>(bytes), count);
  };
  const std::string cookie = be(request.cookie, 8);
  const std::string error = be(static_cast<uint32_t>(verdict.error), 4);
  require(text_of(encode_simple_reply(bytes, request.cookie, verdict.error)) ==
              be(0x67446698, 4) + error + cookie,
          "a simple reply is encoded as the reference does");
  if (verdict.error != ErrorCode::kNone) {
    require(text_of(encode_error_chunk(bytes, request.cookie, verdict.error)) ==
                be(0x668e33ef, 4) + be(0x18001, 4) + cookie + be(6, 4) + error + be(0, 2),
            "an error chunk is encoded as the reference does");
  } else if (request.command == Command::kRead) {
    require(text_of(encode_read_chunk(bytes, request.cookie, request.offset, request.length)) ==
                be(0x668e33ef, 4) + be(0x10001, 4) + cookie + be(uint64_t{request.length} + 8, 4) +
                    be(request.offset, 8),
            "a read chunk is encoded as the reference does");
  }
}

void fuzz_requests(std::string_view input) {
  const ExportView view{.bytes = nbd_reference::number_at(input, 2, 8),
                        .read_only = (input[1] & 1) != 0,
                        .structured_replies = (input[1] & 2) != 0,
                        .block_status = (input[1] & 4) != 0};
  input.remove_prefix(10);
  for (; input.size() >= kRequestHeaderBytes; input.remove_prefix(kRequestHeaderBytes)) {
    const std::string wire(input.substr(0, kRequestHeaderBytes));
    Request request{};
    const bool decoded = try_decode(RequestBytes(std::as_bytes(std::span(wire))), request);
    require(decoded == (nbd_reference::number_at(wire, 0, 4) == 0x25609513), "magic is checked");
    require(nbd_reference::request(request.flags, static_cast<uint16_t>(request.command),
                                   request.cookie, request.offset, request.length)
                    .substr(4) == wire.substr(4),
            "a request is decoded as the reference encodes it");
    const Verdict verdict = check(request, view);
    require(verdict == nbd_reference::expected_verdict(request, view),
            "the reference comes to the same verdict");
    fuzz_reply_headers(request, verdict);
  }
}

}  // namespace
}  // namespace bedplate::nbd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), bytes);
  if (bytes < 1) return 0;
  const bool is_handshake = data[0] % 2 == 0;
  if (bytes < (is_handshake ? 4U : 10U)) return 0;
  if (is_handshake) {
    bedplate::nbd::fuzz_handshake(input);
  } else {
    bedplate::nbd::fuzz_requests(input);
  }
  return 0;
}
