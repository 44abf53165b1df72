// For tests of single copy: a peer of one kind, and this process attached to it. Each test runs
// once for each kind.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/copy_peer.h"
#include "tests/support/skip.h"

namespace bedplate::test {

inline std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

// Why a kind cannot be tested on this machine; nullptr: it can.
inline const char* missing(SingleCopyKind kind) {
  if (kind == SingleCopyKind::kXpmem && access("/dev/xpmem", F_OK) != 0) {
    return "the module xpmem is not loaded";
  }
  if (kind == SingleCopyKind::kKnem && access("/dev/knem", F_OK) != 0) {
    return "the module knem is not loaded";
  }
  return nullptr;
}

struct SingleCopyRig : public Utest {
  std::unique_ptr<CopyPeer> peer;
  std::unique_ptr<SingleCopy> copy;
  PeerMemory memory;
  std::vector<std::byte> local = std::vector<std::byte>(CopyPeer::kBytes, std::byte{0});

  void teardown() override {
    memory.close();
    copy.reset();
    peer.reset();
  }

  using Body = void (*)(SingleCopyRig&, SingleCopyKind);
  void each(SingleCopyKind kind, Body body) {
    if (missing(kind) != nullptr) BP_SKIP(missing(kind));
    body(*this, kind);
  }

  void open(SingleCopyKind kind, CopyPeer::Command prepare = nullptr) {
    peer = std::make_unique<CopyPeer>(kind, prepare);
    auto opened = open_single_copy(kind);
    CHECK(opened.ok());
    copy = opened.take();
  }
  // Makes a peer of `kind`, and attaches to it.
  void attach(SingleCopyKind kind) {
    open(kind);
    const auto attached = copy->attach(peer->as_peer(), peer->card(), memory);
    if (!attached.ok()) FAIL(text_of(attached.error()).c_str());
  }

  void check_read(uint64_t offset, uint64_t bytes, uint64_t seed) {
    std::fill(local.begin(), local.end(), std::byte{0xee});
    const CopyOutcome outcome = memory.read(local.data() + 1, peer->range(), offset, bytes);
    check_outcome(CopyEnd::kDone, bytes, outcome);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < bytes; ++i) wrong += local[i + 1] != pattern(offset + i, seed);
    CHECK_EQUAL(0u, wrong);
    CHECK(local[0] == std::byte{0xee} && local[bytes + 1] == std::byte{0xee});
  }
  void check_outcome(CopyEnd end, uint64_t bytes, const CopyOutcome& outcome) {
    LONGS_EQUAL(static_cast<int>(end), static_cast<int>(outcome.end));
    CHECK_EQUAL(bytes, outcome.bytes);
  }
  void check_refused(const CopyOutcome& outcome) { check_outcome(CopyEnd::kRefused, 0, outcome); }

  std::string attach_error(const SingleCopyCard& card) {
    const auto attached = copy->attach(peer->as_peer(), card, memory);
    CHECK(!attached.ok());
    CHECK(!memory.is_open());
    return text_of(attached.error());
  }
};

}  // namespace bedplate::test

// Defines the test `name` of `group` (its base: SingleCopyRig) for each kind. In the body, `t` is
// the rig, and `kind` is the kind.
#define TEST_EACH_KIND(group, name)                                 \
  static void name(test::SingleCopyRig& t, SingleCopyKind kind);    \
  TEST(group, name##Xpmem) { each(SingleCopyKind::kXpmem, &name); } \
  TEST(group, name##Cma) { each(SingleCopyKind::kCma, &name); }     \
  TEST(group, name##Knem) { each(SingleCopyKind::kKnem, &name); }   \
  static void name(test::SingleCopyRig& t, SingleCopyKind kind)
