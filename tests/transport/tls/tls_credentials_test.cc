// Faults in the files that TLS reads. Each is reported with its cure before anything is served.
#include "transport/tls/tls_credentials.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "tests/support/in_heap.h"
#include "tests/support/skip.h"
#include "tests/transport/tls/tls_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// The mark begins with dots, because free() may overwrite the beginning of a block. Static, so that
// no copy of it lies in the heap.
constexpr char kMark[] = "\n................ a mark that is found in a key's file alone\n";

// The mark without its dots.
constexpr std::string_view kSought = std::string_view(kMark).substr(18);
static_assert(kSought.starts_with("a mark"));

}  // namespace

TEST_GROUP(TlsCredentials) {
  TlsFolder folder;
  TestCertificate authority{"authority", {.is_authority = true}};
  TestCertificate server{"localhost", {.issuer = &authority}};
  std::vector<Error> problems;

  TlsFiles files_of(const TestCertificate& certificate, const TestCertificate& key) {
    return {.certificate = folder.write("cert.pem", certificate.pem(), 0644),
            .key = folder.write("key.pem", key.key_pem())};
  }
  bool load(const TlsFiles& files) {
    TlsCredentials credentials;
    return credentials.load(files, "[server]", &problems);
  }
  // Checks that there is one problem, and that its text has `said`.
  void refused(const TlsFiles& files, const std::string& said) {
    problems.clear();
    CHECK_FALSE(load(files));
    std::string text;
    for (const Error& problem : problems) {
      char line[800];
      text += format_error(problem, line, sizeof line);
      text += '\n';
      CHECK(problem.cure[0] != '\0');
    }
    LONGS_EQUAL(1, problems.size());
    CHECK_TEXT(text.find(said) != std::string::npos, (said + " is not in: " + text).c_str());
    CHECK_TEXT(text.starts_with("reading the "), text.c_str());
    CHECK_TEXT(text.find("[server]") != std::string::npos, text.c_str());
  }
};

TEST(TlsCredentials, TakesWhatIsRight) {
  TlsFiles files = files_of(server, server);
  files.client_authorities = folder.write("ca.pem", authority.pem(), 0644);
  files.shared_keys = folder.write("keys.psk", std::string(kSharedKeyLine) + "\nbob:FFee\n");
  CHECK(load(files));
  LONGS_EQUAL(0, problems.size());
}

TEST(TlsCredentials, RefusesWhatIsNotThere) {
  TlsFiles files = files_of(server, server);
  files.certificate = folder.path("nothing.pem");
  refused(files, "No such file");
  files = files_of(server, server);
  files.key = folder.path("nothing.key");
  refused(files, "No such file");
  files = files_of(server, server);
  files.client_authorities = folder.path("nothing.ca");
  refused(files, "No such file");
  refused({.shared_keys = folder.path("nothing.psk")}, "No such file");
  refused({.shared_keys = "/tmp"}, "it is not a regular file");
}

TEST(TlsCredentials, RefusesWhatIsNoCertificateOrKey) {
  TlsFiles files = files_of(server, server);
  folder.write("cert.pem", "no certificate\n");
  refused(files, "no start line");
  files = files_of(server, server);
  folder.write("cert.pem", server.pem() + authority.pem().replace(100, 4, "????"));
  refused(files, "a certificate in it cannot be read");
  files = files_of(server, server);
  folder.write("key.pem", "no key\n");
  refused(files, "private key");
  folder.write("key.pem", server.key_pem("secret"));
  refused(files, "that has no password");
  files = files_of(server, server);
  files.client_authorities = folder.write("ca.pem", "nothing\n");
  refused(files, "authorities of clients");
  refused({.shared_keys = folder.write("long", std::string(300 * 1024, 'x'))},
          "it has more than 262144 bytes");
}

TEST(TlsCredentials, RefusesAKeyThatIsAnothers) {
  refused(files_of(server, authority), "not the key of the certificate");
}

TEST(TlsCredentials, RefusesWhatIsNotValidNow) {
  const TestCertificate expired{"localhost", {.issuer = &authority, .until = "20210203000000Z"}};
  refused(files_of(expired, expired), "it expired on 2021-02-03");
  const TestCertificate early{"localhost", {.issuer = &authority, .from = "20980101000000Z"}};
  refused(files_of(early, early), "not valid yet");
}

TEST(TlsCredentials, RefusesSecretsThatEverybodyCanRead) {
  TlsFiles files = files_of(server, server);
  chmod(files.key.c_str(), 0644);
  refused(files, "users other than its owner can read or write it");
  refused({.shared_keys = folder.write("keys.psk", kSharedKeyLine, 0604)},
          "users other than its owner");
  CHECK(load({.shared_keys = folder.write("keys.psk", kSharedKeyLine, 0640)}));
}

TEST(TlsCredentials, RefusesSharedKeysThatAreNone) {
  const auto with = [this](const std::string& text) {
    return TlsFiles{.shared_keys = folder.write("keys.psk", text)};
  };
  refused(with("alice\n"), "line 1: it is not a name and a key");
  refused(with("bob:aa\n:0123\n"), "line 2: it is not a name and a key");
  refused(with("alice:012\n"), "not have an even number");
  refused(with("alice:\n"), "not have an even number");
  refused(with("alice:0g\n"), "not in hexadecimal");
  refused(with("alice:" + std::string(1026, 'a') + "\n"), "more than 512 bytes");
  refused(with("alice:aa\nalice:bb\n"), "line 2: the name is already in use");
  refused(with("#616263:aa\n"), "names in hexadecimal");
  // An editor may not show such a character, but it would become part of the name.
  refused(with("\xef\xbb\xbf"
               "alice:aa\n"),
          "line 1, column 1: there is a byte order mark");
  refused(with("bob:aa\nali ce:aa\n"), "line 2, column 4: there is a blank");
  refused(with("alice\t:aa\n"), "line 1, column 6: there is a tab");
  refused(with("bob:aa\n\nalice:aa \n"), "line 3, column 9: there is a blank");
  refused(with("alice:aa\r\n"), "line 1, column 9: there is a carriage return");
  refused(with(""), "it has no key");
  refused(with("\n\n"), "it has no key");
}

// Also if something beside the key is wrong.
TEST(TlsCredentials, LeavesNothingOfAKeysFileInTheHeap) {
  BP_SKIP_UNDER_SANITIZER();
  const auto mark = [](const std::string& file) {
    const int fd = open(file.c_str(), O_WRONLY | O_APPEND);
    LONGS_EQUAL(sizeof kMark - 1, write(fd, kMark, sizeof kMark - 1));
    close(fd);
  };
  TlsFiles files = files_of(server, server);
  mark(files.key);
  files.certificate = folder.path("nothing.pem");
  refused(files, "No such file");
  CHECK_FALSE(is_in_heap(kSought));
  files = files_of(server, server);
  mark(files.key);
  CHECK(load(files));
  CHECK_FALSE(is_in_heap(kSought));
  files = {.shared_keys = folder.write("keys.psk", kSharedKeyLine)};
  mark(files.shared_keys);
  refused(files, "line 3");
  CHECK_FALSE(is_in_heap(kSought));
  std::string found(kMark);
  CHECK(is_in_heap(kSought));                  // the search finds a mark in the heap
  explicit_bzero(found.data(), found.size());  // otherwise the next test finds it
}

TEST(TlsCredentials, WhatTheLibraryFreesIsWiped) {
  BP_SKIP_UNDER_SANITIZER();
  CHECK(load(files_of(server, server)));  // prepares the library
  auto* block = static_cast<char*>(OPENSSL_malloc(5000));
  std::memcpy(block + 1000, kSought.data(), kSought.size());
  block = static_cast<char*>(OPENSSL_realloc(block, 20'000));
  CHECK(std::string_view(block + 1000, kSought.size()) == kSought);
  std::memset(block + 1000, 0, kSought.size());
  CHECK_FALSE(is_in_heap(kSought));  // in its earlier block
  std::memcpy(block + 1000, kSought.data(), kSought.size());
  CHECK(is_in_heap(kSought));
  OPENSSL_free(block);
  CHECK_FALSE(is_in_heap(kSought));
}
