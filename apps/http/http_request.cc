#include "apps/http/http_request.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>

namespace bedplate {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool is_digit(char each) noexcept { return each >= '0' && each <= '9'; }
bool is_letter(char each) noexcept {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z');
}
char lower(char each) noexcept {
  return each >= 'A' && each <= 'Z' ? static_cast<char>(each + ('a' - 'A')) : each;
}

// [RFC 9110, 5.6.2] tchar.
bool is_token(std::string_view text) noexcept {
  static constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char each) {
    return is_digit(each) || is_letter(each) || kOthers.find(each) != std::string_view::npos;
  });
}

bool is_same(std::string_view one, std::string_view other) noexcept {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

std::string_view trimmed(std::string_view text) noexcept {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Splits the part before `separator` off `text`, removes the separator, and returns the part.
std::string_view take_until(std::string_view* text, char separator) noexcept {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

// Whether `text` begins with `word`, in any case; if so, removes the word.
bool take_word_of(std::string_view* text, std::string_view word) noexcept {
  if (!is_same(text->substr(0, word.size()), word)) return false;
  text->remove_prefix(word.size());
  return true;
}

// Whether CR and LF occur only as pairs at a line's end (the last CR may lack its LF), and no NUL
// occurs.
bool has_good_lines(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') return false;
    if (text[i] == '\n' && (i == 0 || text[i - 1] != '\r')) return false;
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] != '\n') return false;
  }
  return true;
}

// [RFC 9110, 12.4.2] The weight in thousandths; 1000 by default.
unsigned weight_of(std::string_view parameters) noexcept {
  while (!parameters.empty()) {
    std::string_view one = trimmed(take_until(&parameters, ';'));
    if (!one.starts_with("q=") && !one.starts_with("Q=")) continue;
    one.remove_prefix(2);
    unsigned weight = 0, unit = 1000;
    for (const char each : one) {
      if (each == '.') continue;
      if (!is_digit(each)) return 0;
      weight += static_cast<unsigned>(each - '0') * unit;
      unit /= 10;
    }
    return weight;
  }
  return 1000;
}

// The weight that the value `accept` gives `type`; 0: `accept` does not name it.
unsigned weight_in(std::string_view accept, std::string_view type) noexcept {
  unsigned best = 0;
  while (!accept.empty()) {
    std::string_view one = take_until(&accept, ',');
    const std::string_view name = trimmed(take_until(&one, ';'));
    if (is_same(name, type)) best = std::max(best, weight_of(one));
  }
  return best;
}

// The headers read so far, with counts of headers that may occur only once.
struct Headers {
  HttpRequest* request;
  int host_count = 0;
  int authorization_count = 0;
  int length_count = 0;
  unsigned openmetrics = 0;
  unsigned plain = 0;
};

// Returns the status to refuse the request with, or 0.
int take_header(std::string_view name, std::string_view value, Headers* headers) noexcept {
  if (is_same(name, "host")) {
    if (!headers->request->has_absolute_target) headers->request->host = value;
    return ++headers->host_count > 1 ? 400 : 0;
  }
  if (is_same(name, "authorization")) {
    headers->request->authorization = value;
    return ++headers->authorization_count > 1 ? 400 : 0;
  }
  if (is_same(name, "transfer-encoding")) return 400;
  if (is_same(name, "content-length")) {
    const bool is_number = !value.empty() && std::all_of(value.begin(), value.end(), is_digit);
    if (!is_number || ++headers->length_count > 1) return 400;
    return value == "0" ? 0 : 413;
  }
  if (is_same(name, "connection")) {
    while (!value.empty()) {
      if (is_same(trimmed(take_until(&value, ',')), "close")) headers->request->is_last = true;
    }
  }
  if (is_same(name, "accept")) {
    headers->openmetrics =
        std::max(headers->openmetrics, weight_in(value, "application/openmetrics-text"));
    headers->plain = std::max(headers->plain, weight_in(value, "text/plain"));
  }
  return 0;
}

int read_headers(std::string_view lines, HttpRequest* request) noexcept {
  Headers headers = {request};
  while (!lines.empty()) {
    const size_t end = lines.find(kLineEnd);
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end + kLineEnd.size());
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return 400;
    const std::string_view value = trimmed(line.substr(colon + 1));
    const bool has_controls = std::any_of(value.begin(), value.end(), [](char each) {
      return (static_cast<unsigned char>(each) < ' ' && each != '\t') || each == '\x7f';
    });
    if (has_controls) return 400;
    if (const int status = take_header(line.substr(0, colon), value, &headers)) return status;
  }
  if (headers.host_count == 0 && !request->is_http_10) return 400;
  request->wants_openmetrics = headers.openmetrics > 0 && headers.openmetrics >= headers.plain;
  return 200;
}

// [RFC 9112, 3.2.2] Takes scheme and host off a target in absolute form, as proxies send it; its
// host overrides the field. Returns the status to refuse the request with, or 0.
int take_host(std::string_view* target, HttpRequest* request) noexcept {
  if (target->starts_with('/')) return 0;
  if (!take_word_of(target, "http://") && !take_word_of(target, "https://")) return 400;
  const size_t end = std::min(target->find_first_of("/?#"), target->size());
  request->host = target->substr(0, end);
  request->has_absolute_target = true;
  target->remove_prefix(end);
  // [RFC 9110, 4.2.4] A user part serves only to deceive.
  return request->host.empty() || request->host.find('@') != std::string_view::npos ? 400 : 0;
}

int read_request_line(std::string_view line, HttpRequest* request) noexcept {
  const std::string_view method = take_until(&line, ' ');
  std::string_view target = take_until(&line, ' ');
  if (!is_token(method) || !line.starts_with("HTTP/") || line.size() != 8 || !is_digit(line[5]) ||
      line[6] != '.' || !is_digit(line[7])) {
    return 400;
  }
  if (line[5] != '1' || line[7] > '1') return 505;
  request->is_http_10 = line[7] == '0';
  request->is_last = request->is_http_10;
  request->is_head = method == "HEAD";
  if (!request->is_head && method != "GET") return 405;
  if (target.size() > kHttpTargetMax) return 414;
  const bool is_visible = std::all_of(target.begin(), target.end(),
                                      [](char each) { return each > ' ' && each < '\x7f'; });
  if (!is_visible) return 400;
  if (const int status = take_host(&target, request)) return status;
  request->path = take_until(&target, '?');
  if (request->path.empty()) request->path = "/";
  return request->path.starts_with('/') ? 0 : 400;
}

}  // namespace

HttpReading read_http_request(std::string_view text) noexcept {
  HttpReading reading;
  // [RFC 9112, 2.2] Empty lines before a request are skipped.
  while (text.starts_with(kLineEnd)) {
    text.remove_prefix(kLineEnd.size());
    reading.bytes += kLineEnd.size();
  }
  const size_t line_end = text.find(kLineEnd);
  const std::string_view line = text.substr(0, line_end);
  // Refuses a client of another protocol, such as TLS, at once.
  if (!has_good_lines(line) || (!line.empty() && line[0] != '\r' && !is_letter(line[0]))) {
    reading.status = 400;
    return reading;
  }
  if (line_end == std::string_view::npos) return reading;
  reading.status = read_request_line(line, &reading.request);
  if (reading.status != 0) return reading;
  const size_t end = text.find("\r\n\r\n", line_end);
  // Bytes after the request belong to the next request.
  const bool is_whole = end != std::string_view::npos;
  if (!has_good_lines(text.substr(0, is_whole ? end + 2 * kLineEnd.size() : end))) {
    reading.status = 400;
    return reading;
  }
  if (!is_whole) return reading;
  const size_t begin = line_end + kLineEnd.size();
  const std::string_view lines =
      end < begin ? std::string_view() : text.substr(begin, end + kLineEnd.size() - begin);
  reading.status = read_headers(lines, &reading.request);
  reading.bytes += end + 2 * kLineEnd.size();
  return reading;
}

std::string_view bearer_token(const HttpRequest& request) noexcept {
  std::string_view said = request.authorization;
  if (!take_word_of(&said, "Bearer ")) return {};
  return trimmed(said);
}

bool is_own_host(std::string_view host, std::string_view own_name) noexcept {
  if (host.empty()) return true;
  char address[64] = "";
  unsigned char bytes[16];
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos || end - 1 >= sizeof address) return false;
    std::memcpy(address, host.data() + 1, end - 1);
    const std::string_view rest = host.substr(end + 1);
    return (rest.empty() || rest[0] == ':') && inet_pton(AF_INET6, address, bytes) == 1;
  }
  const std::string_view name = host.substr(0, host.find(':'));
  if (is_same(name, "localhost") || (!own_name.empty() && is_same(name, own_name))) return true;
  if (name.size() >= sizeof address) return false;
  std::memcpy(address, name.data(), name.size());
  return inet_pton(AF_INET, address, bytes) == 1;
}

}  // namespace bedplate
