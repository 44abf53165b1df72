// The layer of a connection, such as TLS, as its listener and its session see it (stream_layer.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "platform/assert.h"

namespace bedplate {

// Which clients of a listener speak the layer's protocol.
enum class LayerUse : uint8_t {
  kNone,
  kOffered,   // those that begin with it, or ask for it
  kRequired,  // all: no other client is served
};

// The most bytes of the layer that may arrive before it begins.
inline constexpr size_t kLayerEarlyBytesMax = 4 * 1024;

// The layer of a session's peer. Invariant, which StreamSession::is_valid() looks at: a layer that
// is wanted has not begun, and its use is not kNone.
class SessionLayer {
 public:
  // A protocol that begins the layer itself serves nothing before that, if the use is kRequired.
  LayerUse use() const noexcept { return use_; }
  // Whether all that arrives now has come through the layer.
  bool has_begun() const noexcept { return has_begun_; }
  // Whether the session may begin it: StreamSession::start_layer.
  bool may_start() const noexcept { return use_ != LayerUse::kNone && !has_begun_ && !is_wanted_; }

  // ---- For the owner of the socket ----

  // Called before the first bytes of a peer; never called: there is no layer.
  void set(LayerUse use, bool has_begun) noexcept {
    use_ = use;
    has_begun_ = has_begun;
    is_wanted_ = false;
  }
  // The session has called start_layer(): StreamSession::begin_layer.
  bool is_wanted() const noexcept { return is_wanted_; }

  // ---- For the session ----

  void want() noexcept {
    BP_ASSERT(may_start());
    is_wanted_ = true;
  }
  // Its session has another peer, or none.
  void forget() noexcept { *this = {}; }
  void begin() noexcept {
    BP_ASSERT(is_wanted_);
    is_wanted_ = false;
    has_begun_ = true;
  }

  bool is_valid() const noexcept { return !is_wanted_ || (use_ != LayerUse::kNone && !has_begun_); }

 private:
  LayerUse use_ = LayerUse::kNone;
  bool has_begun_ = false;
  bool is_wanted_ = false;
};

}  // namespace bedplate
