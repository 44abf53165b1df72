// One request of HTTP/1.1 (RFC 9112), as strictly as a server can read it that takes GET and HEAD
// and no bodies: whatever two readers could understand in two ways is refused.
//
// No parser of others is taken: Debian's http-parser is kept by nobody any more, libh2o's takes
// line feeds alone, folded lines and more than one Host, and all of what such a parser is good for,
// bodies and chunks, is refused here.
//
// Threads: any. Nothing is allocated, nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bedplate {

struct HttpRequest {
  std::string_view path;  // without what follows a question mark
  // As the target in absolute form, or the field, has it; empty: there is none (HTTP/1.0).
  std::string_view host;
  std::string_view authorization;
  bool has_absolute_target = false;
  bool is_head = false;
  bool is_http_10 = false;         // it knows no chunks
  bool is_last = false;            // the connection closes after it
  bool wants_openmetrics = false;  // rather than plain text
};

struct HttpReading {
  // 0: more must come. 200: `request` is there, whose texts point into what was read. Else what is
  // answered before the connection closes: what follows cannot be told apart.
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

// Whether a page of another site, whose name was made to lead here (DNS rebinding), cannot have
// asked for `host`: it is an address, "localhost", `own_name` in any case, or empty.
bool is_own_host(std::string_view host, std::string_view own_name = "") noexcept;

}  // namespace bedplate
