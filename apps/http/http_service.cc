// Tested by tests/system/http_test.py.
#include "apps/http/http_service.h"

#include <algorithm>

#include "apps/boot/service_context.h"
#include "apps/boot/service_plan.h"
#include "platform/file.h"

namespace bedplate {
namespace {

constexpr uint64_t kListenersMax = 8;
constexpr uint64_t kConnectionsMax = 1024;
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 256;
constexpr uint16_t kPort = 9464;
constexpr size_t kLogLines = 128;
constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    "Connection: close\r\n\r\n";

Error bad_token(const std::string& file) {
  Error error;
  error.set_doing("reading the token of [http] from %s", file.c_str());
  return error;
}

}  // namespace

HttpService::HttpService() {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = kPort;
  listen_.push_back(address);
}

HttpService::~HttpService() {
  if (log_) keep_few_lines();
}

void HttpService::describe(ConfigurationTable& table) {
  table.addresses("listen", &listen_, 1, kListenersMax)
      .otherwise("[\"tcp:127.0.0.1:9464\"]")
      .unique()
      .help(
          "Where HTTP is served ([http.md](http.md)). What others than this machine reach takes a "
          "token.");
  table.addresses("image_listen", &image_listen_, 1, kListenersMax)
      .otherwise("those of listen")
      .unique()
      .help("Where it listens instead as first process of an image.");
  table.path("token_file", &token_file_, 1, 255)
      .otherwise("no token is asked for")
      .help("A file with the token that each request must bring, of 16 to 256 bytes: "
            "`Authorization: Bearer TOKEN`. It is read at boot, before root is given up.");
  table.text("host", &site_.host, 1, 253)
      .otherwise("it has no name")
      .help("A name by which it is asked, beside addresses and `localhost`. A request for another "
            "name is refused: a page elsewhere may have made it.");
  table.integer("max_connections", &max_connections_, 1, kConnectionsMax)
      .help("How many may be open. Their memory is planned; a new one takes the place of one that "
            "says nothing.");
}

Result<void> HttpService::plan(ServicePlan& plan) {
  if (!token_file_.empty()) plan.image_file(token_file_);
  LocalOnly local_only;
  if (token_file_.empty()) {
    local_only = {"others than this machine reach it, and no token is asked for",
                  "set token_file in [http], or listen at tcp:127.0.0.1:PORT or unix:PATH"};
  }
  plan.listen("listen", listen_, image_listen_, local_only);
  plan.counters<HttpCounters>("http");
  plan.threads(1);
  plan.descriptors(max_connections_ + ConnectionThread::kDescriptorCount, "max_connections");
  plan.heap(max_connections_ * (ConnectionThread::bytes_each() + sizeof(HttpSession)) +
            kLogLines * sizeof(LineSlot));
  return {};
}

Result<void> HttpService::prepare() {
  if (token_file_.empty()) return {};
  char text[kTokenBytesMax + 3];
  auto read = read_text_file(token_file_.c_str(), text, sizeof text);
  if (!read.ok()) {
    Error error = read.error();
    return error.set_cure("make it (openssl rand -hex 32), or correct token_file in [http]");
  }
  std::string token(text, read.value());
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  const bool is_visible = std::all_of(token.begin(), token.end(),
                                      [](char each) { return each > ' ' && each < '\x7f'; });
  if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax || !is_visible) {
    return bad_token(token_file_)
        .set_answer("it has %zu bytes, or some that are no visible ASCII", token.size())
        .set_cure("write 16 to 256 of these in one line: openssl rand -hex 32");
  }
  site_.token = token;
  return {};
}

Result<void> HttpService::create(ServiceContext& context) {
  auto counters = context.counters<HttpCounters>("http");
  BP_TRY(counters);
  auto listening = context.listeners("listen");
  BP_TRY(listening);
  log_ = std::make_unique<LineSlot[]>(kLogLines);
  keep_lines_in({log_.get(), kLogLines});
  site_.counters = counters.value();
  site_.view = context.all_counters();
  site_.listeners_max = max_connections_ / 2;
  std::vector<ConnectionSession*> sessions;
  for (uint32_t i = 0; i < max_connections_; ++i) {
    sessions.push_back(sessions_.emplace_back(std::make_unique<HttpSession>(site_)).get());
  }
  return thread_.create({.name = name(),
                         .counters = &site_.counters->connections,
                         .too_many = [](void*, std::span<char>) noexcept { return kTooMany; }},
                        listening.value(), sessions);
}

Result<void> HttpService::sealed() {
  site_.is_ready = true;
  thread_.begin();
  return {};
}

}  // namespace bedplate
