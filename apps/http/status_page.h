// The page that a browser gets: what /metrics says, each second, as tables and bars.
//
// It is one text without any other resource. It knows the pool, its owners and the shards; whatever
// else has counters is shown by their names. Threads: any.
#pragma once

#include <string_view>

namespace bedplate {

// Smaller than a piece of metrics, so that a connection has room for it.
extern const std::string_view kStatusPage;
// Headers: nothing is loaded, sent elsewhere or put into another page's frame.
extern const std::string_view kStatusPageHeaders;

}  // namespace bedplate
