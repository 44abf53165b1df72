// `cpp-peer SOCKET NAME [KIND...]` joins a pool, prints what holds in it as JSON, and leaves. Of
// single copy it allows the KINDs alone ("none": nothing); without any, what the owner configured.
#include <cstdio>
#include <cstring>
#include <vector>

#include "transport/joined_process.h"

using namespace bedplate;

int main(int count, char** words) {
  if (count < 3) return std::fputs("usage: cpp-peer SOCKET NAME [KIND...]\n", stderr), 2;
  std::vector<SingleCopyKind> allowed;
  for (const SingleCopyKind kind : kSingleCopyKinds) {
    for (int i = 3; i < count; ++i) {
      if (std::strcmp(words[i], name_of(kind)) == 0) allowed.push_back(kind);
    }
  }
  JoinedProcessOptions options;
  options.join.socket_path = words[1];
  options.join.process = words[2];
  if (count > 3) options.single_copy = allowed;
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) {
    char text[1024];
    std::fprintf(stderr, "cpp-peer: %s\n", format_error(joined.error(), text, sizeof text));
    return 1;
  }
  const SingleCopy* taken = joined.value()->single_copy();
  std::printf("{\"single_copy\": \"%s\"}\n", taken != nullptr ? taken->name() : "none");
  joined.value()->leave();
  return 0;
}
