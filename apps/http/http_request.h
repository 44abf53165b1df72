// A strict parser for one HTTP/1.1 request (RFC 9112), for a server that takes GET and HEAD and no
// bodies. It refuses any request that two parsers could understand differently.
//
// It uses no library: Debian's http-parser is unmaintained, libh2o's accepts bare line feeds,
// folded lines and more than one Host. Bodies and chunks, the main use of such a parser, are
// refused here.
//
// Threads: any. Nothing is allocated or kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bedplate {

struct HttpRequest {
  std::string_view path;  // without the question mark and the query
  // From the target in absolute form, or the Host field, with the port; empty: neither is present
  // (HTTP/1.0), or the field is empty.
  std::string_view host;
  std::string_view authorization;
  bool has_absolute_target = false;
  bool is_head = false;
  bool is_http_10 = false;         // the client knows no chunks
  bool is_last = false;            // the connection closes after this request
  bool wants_openmetrics = false;  // instead of plain text
};

struct HttpReading {
  // 0: the request is incomplete. 200: `request` is valid; its views point into the text read. Else
  // the status to answer before the connection closes: the start of the next request is unknown.
  int status = 0;
  size_t bytes = 0;  // with status 200: of the request, with the empty lines around it
  HttpRequest request;
};

// The longest target: a path with its query, after scheme and host in absolute form.
inline constexpr size_t kHttpTargetMax = 1024;

// Reads the request at the start of `text`.
HttpReading read_http_request(std::string_view text) noexcept;

// The token after `Bearer`; empty: none.
std::string_view bearer_token(const HttpRequest& request) noexcept;

// Whether `host` is safe from DNS rebinding (a page of another site whose name resolves to this
// server): an address, "localhost", `own_name` in any case, or empty. The port is ignored.
bool is_own_host(std::string_view host, std::string_view own_name = "") noexcept;

}  // namespace bedplate
