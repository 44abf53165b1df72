#include "apps/http/http_service.h"

#include <algorithm>

#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/secret_file.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_streams.h"

namespace bedplate {
namespace {

constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 256;
constexpr size_t kLogLines = 128;
// The owner of all allocations of the service, including OpenSSL's on its behalf.
constexpr const char* kHeapOwner = "heap:http";
constexpr const char* kWhere = "[http]";
constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    "Connection: close\r\n\r\n";

}  // namespace

HttpService::~HttpService() {
  if (log_) keep_few_lines();
}

// A client without a certificate may use the token.
TlsFiles HttpService::tls_files() const {
  TlsFiles files = settings_.tls;
  files.takes_clients_without = !settings_.token_file.empty();
  files.user = user_;
  return files;
}

Result<void> HttpService::plan(ServicePlan& plan) {
  user_ = plan.configuration().appliance.user;
  if (!settings_.token_file.empty()) plan.image_file(settings_.token_file);
  ListenTerms terms = {
      .encryption = settings_.tls.is_empty() ? Encryption::kNone : Encryption::kAlways,
      .tls_cure = "set tls_certificate and tls_key in [http]"};
  if (settings_.token_file.empty() && settings_.tls.client_authorities.empty()) {
    terms.local_only = {"other machines can reach it, and it requires no token",
                        "set token_file or tls_client_authorities in [http], or listen at "
                        "tcp:127.0.0.1:PORT or unix:PATH"};
  }
  plan.listen("listen", settings_.listen, settings_.image_listen, terms);
  plan.counters<HttpCounters>("http");
  const uint32_t count = settings_.max_connections;
  plan.socket_thread(count + StreamServer::kOtherSocketsMax, "max_connections");
  plan.heap(StreamServer::bytes_for<HttpSession>(count) + kLogLines * sizeof(LineSlot));
  if (settings_.tls.is_empty()) return {};
  plan.counters<TlsCounters>("tls");
  plan.heap(TlsStreams::bytes_for(count));
  plan.kept_heap(kHeapOwner, TlsCredentials::heap_bytes(count), 1);
  for (const std::string* path :
       {&settings_.tls.certificate, &settings_.tls.key, &settings_.tls.client_authorities}) {
    if (!path->empty()) plan.image_file(*path);
  }
  return {};
}

void HttpService::preflight(std::vector<Error>* problems) {
  if (auto token = read_token(); !token.ok()) problems->push_back(token.error());
  if (!settings_.tls.is_empty()) tls_part()->make(kWhere, kHeapOwner)->load(tls_files(), problems);
}

// Reads the secrets while the process still has the rights.
Result<void> HttpService::prepare() {
  BP_TRY_ASSIGN(site_.token, read_token());
  if (settings_.tls.is_empty()) return {};
  std::vector<Error> problems;
  tls_ = tls_part()->make(kWhere, kHeapOwner);
  if (!tls_->load(tls_files(), &problems)) return problems.front();
  return {};
}

// Returns the token; empty: clients need none.
Result<std::string> HttpService::read_token() const {
  if (settings_.token_file.empty()) return std::string();
  Error error = error_while("reading the token of [http] from %s", settings_.token_file.c_str());
  auto read =
      read_secret_file(settings_.token_file, FilePrivacy::kSecret, kTokenBytesMax + 2, user_);
  if (!read.ok()) {
    const bool is_missing = access(settings_.token_file.c_str(), F_OK) != 0;
    error.set_answer("%s", read.error().answer);
    return error.set_cure("%s", is_missing ? "create it (openssl rand -hex 32), or correct "
                                             "token_file"
                                           : read.error().cure);
  }
  std::string_view token = read.value().text;
  while (token.ends_with('\n') || token.ends_with('\r')) token.remove_suffix(1);
  const bool is_visible = std::all_of(token.begin(), token.end(),
                                      [](char each) { return each > ' ' && each < '\x7f'; });
  if (token.size() >= kTokenBytesMin && token.size() <= kTokenBytesMax && is_visible) {
    return std::string(token);
  }
  error.set_answer("it has %zu bytes, or bytes that are not visible ASCII", token.size());
  return error.set_cure("write 16 to 256 visible ASCII characters in one line: openssl rand -hex "
                        "32");
}

Result<void> HttpService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto counters, context.counters<HttpCounters>("http"));
  BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
  log_ = std::make_unique<LineSlot[]>(kLogLines);
  keep_lines_in({log_.get(), kLogLines});
  site_.host = settings_.host;
  site_.counters = counters;
  site_.view = context.all_counters();
  site_.listeners_max = settings_.max_connections / 2;
  BP_TRY(thread_.create(
      {.name = name(),
       .socket_count_max = settings_.max_connections + StreamServer::kOtherSocketsMax,
       .source_count_max = 1,
       .begin = [](void* self) noexcept { static_cast<HttpService*>(self)->server_.start(); },
       .end = [](void* self) noexcept { static_cast<HttpService*>(self)->server_.end(); },
       .context = this}));
  site_.own_loop = &thread_.loop();
  if (tls_ != nullptr) BP_TRY(secure(context));
  server_.create<HttpSession>({.name = name(),
                               .loop = &thread_.loop(),
                               .sockets = &thread_.sockets(),
                               .counters = &counters->clients,
                               .answer_ns_max = 0,  // a client of /events is never owed an answer
                               .layers = layers_.get(),
                               .refusals = {.too_many = &HttpService::too_many, .context = this},
                               .patience = kUsualPatience,
                               .replaces_idle = true},
                              {}, site_);
  // In pieces, for which the heap finds space more easily.
  constexpr uint64_t kBytes = StreamServer::bytes_for<HttpSession>(1);
  for (uint32_t i = 0; i < settings_.max_connections; ++i) {
    memory_.push_back(std::make_unique_for_overwrite<CacheLine[]>(kBytes / sizeof(CacheLine)));
    server_.add<HttpSession>({memory_.back()[0].bytes, kBytes}, site_);
  }
  for (const Fd& socket : listening) server_.add_listener(socket.number());
  return {};
}

// A client that waits for TLS gets no plain text.
std::string_view HttpService::too_many(void* self, std::span<char> /*room*/) noexcept {
  return static_cast<HttpService*>(self)->tls_ == nullptr ? kTooMany : std::string_view();
}

// Limits the memory that the TLS library takes beyond its current use, so that clients cannot
// exhaust the heap of other owners.
Result<void> HttpService::secure(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto counters, context.counters<TlsCounters>("tls"));
  const uint64_t bytes = TlsStreams::bytes_for(settings_.max_connections);
  layer_memory_ = std::make_unique_for_overwrite<CacheLine[]>(bytes / sizeof(CacheLine));
  layers_ = tls_->make_layers({.sockets = &thread_.sockets(),
                               .counters = counters,
                               .memory = {layer_memory_[0].bytes, bytes},
                               .handshake_ns_max = kUsualPatience.slow_ns_max});
  thread_.add_source(*layers_, "TLS");
  BP_TRY_ASSIGN(const auto owner, heap_owner(OwnerName(kHeapOwner)));
  // A [[limit]] of the configuration is set later.
  limit_heap_owner(owner, heap_owner_use(owner).used_bytes +
                              TlsCredentials::heap_bytes(settings_.max_connections));
  return {};
}

Result<void> HttpService::sealed() {
  site_.is_ready = true;
  thread_.begin();
  return {};
}

}  // namespace bedplate
