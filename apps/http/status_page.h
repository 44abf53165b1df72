// The page that a browser gets: what needs a look, and what /metrics says, each second, as tables
// and bars.
//
// It is one text without any other resource. It knows the pool, its owners and the shards; whatever
// else has counters is shown by their names. Threads: any.
#pragma once

#include <string_view>

namespace bedplate {

// Before and behind the list of what needs a look. Smaller than a piece of metrics, so that a
// connection has room for it and some of those.
extern const std::string_view kStatusPageBegin;
extern const std::string_view kStatusPageEnd;
// Headers: nothing is loaded, sent elsewhere or put into another page's frame.
extern const std::string_view kStatusPageHeaders;

}  // namespace bedplate
