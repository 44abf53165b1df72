#include "apps/http/http_service.h"

#include <algorithm>

#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/configuration/read_table.h"
#include "apps/services/service_plan.h"
#include "platform/secret_file.h"

namespace bedplate {
namespace {

constexpr uint64_t kListenersMax = 8;
constexpr uint64_t kConnectionsMax = 1024;
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 256;
constexpr uint16_t kPort = 9464;
constexpr size_t kLogLines = 128;
// The owner of all that the service allocates, what OpenSSL does for it included.
constexpr const char* kHeapOwner = "heap:http";
constexpr const char* kWhere = "[http]";
constexpr std::string_view kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    "Connection: close\r\n\r\n";

void check_tls(ReadTable& read, const TlsFiles& files) {
  check_tls_certificate(read, files);
  if (!files.is_empty() && tls_part() == nullptr) {
    read.refuse_value("tls_certificate", "this program has no TLS linked in",
                      "link it with bedplate-tls (pkg-config; CMake: Bedplate::tls), or leave the "
                      "key out");
  }
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
      .help("The addresses at which HTTP is served ([http.md](http.md)). One that others than this "
            "machine reach takes a token or client certificates.");
  table.addresses("image_listen", &image_listen_, 1, kListenersMax)
      .otherwise("those of listen")
      .unique()
      .help("The addresses instead, as first process of an image.");
  table.path("token_file", &token_file_, 1, 255)
      .otherwise("no token is asked for")
      .help(
          "A file with the token that each request must bring, of 16 to 256 bytes: "
          "`Authorization: Bearer TOKEN`. It is read at boot, before root is given up. Its file is "
          "for its owner alone, or root's with mode 0640.");
  table.path("tls_certificate", &tls_files_.certificate, 1, 255)
      .otherwise("none: HTTP is in clear")
      .help("The server's certificate, in PEM, with those between it and its authority behind it: "
            "all of `listen` is HTTPS then ([http.md](http.md#tls)).");
  table.path("tls_key", &tls_files_.key, 1, 255)
      .otherwise("none: there is no certificate")
      .help("The private key of `tls_certificate`. Its file is for its owner alone, or root's with "
            "mode 0640.");
  table.path("tls_client_authorities", &tls_files_.client_authorities, 1, 255)
      .otherwise("none: no client is asked for a certificate")
      .help("Certificates, in PEM: a client must show one that one of these has signed; or, where "
            "there is a `token_file`, bring the token.");
  table.text("host", &site_.host, 1, 253)
      .otherwise("it has no name")
      .help("A name by which it is asked, beside addresses and `localhost`. A request for another "
            "name is refused: a page elsewhere may have made it.");
  table.integer("max_connections", &max_connections_, 1, kConnectionsMax)
      .help("How many may be open. Their memory is planned; a new one takes the place of one that "
            "says nothing.");
  table.check([this](ReadTable& read) { check_tls(read, tls_files_); });
}

// A client without a certificate may use the token instead.
TlsFiles HttpService::tls_files() const {
  TlsFiles files = tls_files_;
  files.takes_clients_without = !token_file_.empty();
  files.user = user_;
  return files;
}

Result<void> HttpService::plan(ServicePlan& plan) {
  user_ = plan.configuration().appliance.user;
  if (!token_file_.empty()) plan.image_file(token_file_);
  ListenTerms terms = {
      .encryption = tls_files_.is_empty() ? Encryption::kNone : Encryption::kAlways,
      .tls_cure = "set tls_certificate and tls_key in [http]"};
  if (token_file_.empty() && tls_files_.client_authorities.empty()) {
    terms.local_only = {"others than this machine reach it, and no token is asked for",
                        "set token_file or tls_client_authorities in [http], or listen at "
                        "tcp:127.0.0.1:PORT or unix:PATH"};
  }
  plan.listen("listen", listen_, image_listen_, terms);
  plan.counters<HttpCounters>("http");
  plan.threads(1);
  plan.descriptors(max_connections_ + ConnectionThread::kDescriptorCount, "max_connections");
  plan.heap(max_connections_ * (ConnectionThread::bytes_each() + sizeof(HttpSession)) +
            kLogLines * sizeof(LineSlot));
  if (tls_files_.is_empty()) return {};
  plan.counters<TlsCounters>("tls");
  plan.heap(max_connections_ * tls_part()->connection_bytes);
  plan.kept_heap(kHeapOwner, TlsCredentials::heap_bytes(max_connections_), 1);
  for (const std::string* path :
       {&tls_files_.certificate, &tls_files_.key, &tls_files_.client_authorities}) {
    if (!path->empty()) plan.image_file(*path);
  }
  return {};
}

void HttpService::preflight(std::vector<Error>* problems) {
  if (auto token = read_token(); !token.ok()) problems->push_back(token.error());
  if (!tls_files_.is_empty()) tls_part()->make(kWhere, kHeapOwner)->load(tls_files(), problems);
}

// Reads the secrets while the process still has the right to.
Result<void> HttpService::prepare() {
  BP_TRY_ASSIGN(site_.token, read_token());
  if (tls_files_.is_empty()) return {};
  std::vector<Error> problems;
  tls_ = tls_part()->make(kWhere, kHeapOwner);
  if (!tls_->load(tls_files(), &problems)) return problems.front();
  return {};
}

// Returns the token; empty: clients need none.
Result<std::string> HttpService::read_token() const {
  if (token_file_.empty()) return std::string();
  Error error = error_while("reading the token of [http] from %s", token_file_.c_str());
  auto read = read_secret_file(token_file_, FilePrivacy::kSecret, kTokenBytesMax + 2, user_);
  if (!read.ok()) {
    const bool is_missing = access(token_file_.c_str(), F_OK) != 0;
    error.set_answer("%s", read.error().answer);
    return error.set_cure("%s", is_missing ? "make it (openssl rand -hex 32), or correct token_file"
                                           : read.error().cure);
  }
  std::string_view token = read.value().text;
  while (token.ends_with('\n') || token.ends_with('\r')) token.remove_suffix(1);
  const bool is_visible = std::all_of(token.begin(), token.end(),
                                      [](char each) { return each > ' ' && each < '\x7f'; });
  if (token.size() >= kTokenBytesMin && token.size() <= kTokenBytesMax && is_visible) {
    return std::string(token);
  }
  error.set_answer("it has %zu bytes, or some that are no visible ASCII", token.size());
  return error.set_cure("write 16 to 256 of these in one line: openssl rand -hex 32");
}

Result<void> HttpService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto counters, context.counters<HttpCounters>("http"));
  BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
  log_ = std::make_unique<LineSlot[]>(kLogLines);
  keep_lines_in({log_.get(), kLogLines});
  site_.counters = counters;
  site_.view = context.all_counters();
  site_.listeners_max = max_connections_ / 2;
  std::vector<ConnectionSession*> sessions;
  for (uint32_t i = 0; i < max_connections_; ++i) {
    sessions.push_back(sessions_.emplace_back(std::make_unique<HttpSession>(site_)).get());
  }
  if (tls_ != nullptr) BP_TRY(secure(context, &sessions));
  return thread_.create({.name = name(),
                         .counters = &site_.counters->connections,
                         .too_many = &HttpService::too_many,
                         .context = this},
                        listening, sessions);
}

// A client that waits for TLS gets no clear text.
std::string_view HttpService::too_many(void* self, std::span<char> /*room*/) noexcept {
  return static_cast<HttpService*>(self)->tls_ == nullptr ? kTooMany : std::string_view();
}

// Wraps each session in TLS. Limits the memory that the TLS library takes beyond its present use,
// so that clients cannot use up the heap of others.
Result<void> HttpService::secure(ServiceContext& context,
                                 std::vector<ConnectionSession*>* sessions) {
  BP_TRY_ASSIGN(const auto counters, context.counters<TlsCounters>("tls"));
  for (ConnectionSession*& session : *sessions) {
    secure_sessions_.push_back(tls_->wrap(*session, *counters));
    session = secure_sessions_.back().get();
  }
  BP_TRY_ASSIGN(const auto owner, heap_owner(OwnerName(kHeapOwner)));
  // A [[limit]] of the configuration comes later.
  limit_heap_owner(owner,
                   heap_owner_use(owner).used_bytes + TlsCredentials::heap_bytes(max_connections_));
  return {};
}

Result<void> HttpService::sealed() {
  site_.is_ready = true;
  thread_.begin();
  return {};
}

}  // namespace bedplate
