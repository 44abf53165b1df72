// One request of HTTP/1.1 (RFC 9112), read strictly, for a server that takes GET and HEAD and no
// bodies: anything that two readers could understand in two ways is refused.
//
// It uses no library: Debian's http-parser is unmaintained, libh2o's accepts bare line feeds,
// folded lines and more than one Host, and the main use of such a parser, bodies and chunks, is
// refused here.
//
// Threads: any. Nothing is allocated, nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bedplate {

struct HttpRequest {
  std::string_view path;  // without what follows a question mark
  // From the target in absolute form, or the Host field; empty: there is none (HTTP/1.0).
  std::string_view host;
  std::string_view authorization;
  bool has_absolute_target = false;
  bool is_head = false;
  bool is_http_10 = false;         // it knows no chunks
  bool is_last = false;            // the connection closes after it
  bool wants_openmetrics = false;  // rather than plain text
};

struct HttpReading {
  // 0: it is incomplete. 200: `request` is valid; its texts point into the text read. Else the
  // status to answer before the connection closes: the next request's start is unknown.
  int status = 0;
  size_t bytes = 0;  // of the request, with its empty line
  HttpRequest request;
};

// The longest path, with what follows it.
inline constexpr size_t kHttpTargetMax = 1024;

// Reads the request that `text` begins with.
HttpReading read_http_request(std::string_view text) noexcept;

// The token behind `Bearer`; empty: there is none.
std::string_view bearer_token(const HttpRequest& request) noexcept;

// Whether `host` is safe from DNS rebinding (a page of another site whose name leads here): it is
// an address, "localhost", `own_name` in any case, or empty.
bool is_own_host(std::string_view host, std::string_view own_name = "") noexcept;

}  // namespace bedplate
